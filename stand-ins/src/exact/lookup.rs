//! Replaces the product of a one-hot matrix and weights with a lookup of rows.
//!
//! Each row of the product is one row of the weights. An index outside the range gives a one-hot row of zeros, and
//! hence a product of zeros. For these indices the table gets a row of zeros at its end, and indices are clipped to
//! the range from -1, which engines count from the end, to that row.

use std::collections::HashMap;

use bytes::Bytes;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Kind, Tensor};

use crate::graph::{Links, Size, Survey, types};

/// The first version of the operators whose `Clip` takes integers.
const INTEGER_CLIP: i64 = 12;
/// The first version whose `Squeeze` reads its axes as an input.
const AXES_AS_INPUT: i64 = 13;
/// Maximum elements of a table: a lookup in a larger one saves no time.
const LARGEST: usize = 1 << 24;

/// Replaces every such product with a lookup.
pub(super) fn look_up(draft: &mut Draft, survey: &Survey) -> Result<(), Defect> {
    if draft.opset() < INTEGER_CLIP {
        return Ok(());
    }
    let (links, types) = (Links::of(draft), types(draft));
    for at in 0..draft.nodes.len() {
        let Some((indices, weight)) = product(draft, &links, survey, at) else { continue };
        let Some(datatype) = types.get(&indices).copied() else { continue };
        if !matches!(datatype, DataType::Int32 | DataType::Int64) {
            continue;
        }
        replace(draft, at, (&indices, datatype), &weight)?;
    }
    Ok(())
}

/// Indices and weights of a product with a one-hot matrix.
fn product(draft: &Draft, links: &Links, survey: &Survey, at: usize) -> Option<(String, Tensor)> {
    let node = draft.nodes.get(at).filter(|node| node.is(&["MatMul"]))?;
    let weight = draft.constants.get(node.at(1)?)?;
    let [classes, _] = *weight.dims() else { return None };
    if weight.datatype() != DataType::Float {
        return None;
    }
    let cast = &draft.nodes[links.maker(node.at(0)?)?];
    let equal = &draft.nodes[links.maker(cast.at(0).filter(|_| cast.is(&["Cast"]))?)?];
    if !equal.is(&["Equal"]) {
        return None;
    }
    let (a, b) = (equal.at(0)?, equal.at(1)?);
    let counts = |name: &str| draft.constants.get(name).is_some_and(|constant| is_count(constant, classes));
    let indices = match (counts(a), counts(b)) {
        (false, true) => a,
        (true, false) => b,
        _ => return None,
    };
    let sizes = survey.sizes(indices)?;
    (sizes.last() == Some(&Size::Fixed(1))).then(|| (indices.to_owned(), weight.clone()))
}

/// Whether a constant is 0, 1, 2 .. along its last axis.
fn is_count(constant: &Tensor, classes: usize) -> bool {
    let along_last = constant.len() == classes && constant.dims().last() == Some(&classes);
    let numbers = constant.to_i64().unwrap_or_default();
    along_last && numbers.len() == classes && (0..).zip(&numbers).all(|(place, number)| place == *number)
}

fn replace(
    draft: &mut Draft,
    at: usize,
    (indices, datatype): (&str, DataType),
    weight: &Tensor,
) -> Result<(), Defect> {
    let product = draft.nodes[at].clone();
    let made = product.only_output().unwrap_or_default().to_owned();
    let &[classes, width] = weight.dims() else { return Ok(()) };
    let mut rows = weight.data().to_vec();
    rows.resize(rows.len() + width * 4, 0);
    let table = Tensor::new(&format!("{made}/table"), DataType::Float, &[classes + 1, width], rows.into())?;
    let table = draft.add_constant(table);
    let bound = |draft: &mut Draft, name: &str, value: i64| {
        let data: Bytes = match datatype {
            DataType::Int32 => (value as i32).to_le_bytes().to_vec().into(),
            _ => value.to_le_bytes().to_vec().into(),
        };
        Tensor::new(&format!("{made}/{name}"), datatype, &[], data).map(|tensor| draft.add_constant(tensor))
    };
    let (low, high) = (bound(draft, "low", -1)?, bound(draft, "high", classes as i64)?);
    let flat = draft.fresh(&format!("{made}/flat"));
    let mut squeeze = draft.make("Squeeze", &[indices], &flat, []);
    draft.give(&mut squeeze, "axes", &[-1], AXES_AS_INPUT)?;
    let inside = draft.fresh(&format!("{made}/inside"));
    let clip = draft.make("Clip", &[&flat, &low, &high], &inside, []);
    draft.nodes[at] = draft.make("Gather", &[&table, &inside], &made, [("axis", Attribute::Int(0))]);
    draft.nodes.extend([squeeze, clip]);
    Ok(())
}

/// Applies operators on looked-up rows to the table, where they are computed once: a lookup moves behind an operator that
/// combines rows of tables with constants. What remains between constants is settled afterwards.
pub(super) fn precompute(draft: &mut Draft) -> Result<(), Defect> {
    // A lookup may still stand at the end: its readers must come behind it.
    draft.sort();
    // The tables of values that are looked up, and the indices.
    let mut looked_up: HashMap<String, (String, String)> = HashMap::new();
    let mut dims: HashMap<String, Vec<usize>> = HashMap::new();
    let mut added = Vec::new();
    for at in 0..draft.nodes.len() {
        let mut node = draft.nodes[at].clone();
        let Some(made) = node.only_output().map(str::to_owned) else { continue };
        if let Some((table, indices)) = lookup(draft, &node) {
            dims.insert(table.name().to_owned(), table.dims().to_vec());
            looked_up.insert(made, (table.name().to_owned(), indices.to_owned()));
            continue;
        }
        let Some((table, indices)) = node.input.iter().find_map(|name| looked_up.get(name)).cloned() else {
            continue;
        };
        let size = dims[&table].clone();
        if !Kind::of(&node).is_by_value() {
            continue;
        }
        let mut inputs = Vec::new();
        for name in &node.input {
            let along_rows = |constant: &&Tensor| {
                let (last, others) = constant.dims().split_last().unwrap_or((&1, &[]));
                others.iter().all(|&dim| dim == 1) && (*last == 1 || *last == size[1]) && others.len() < 3
            };
            inputs.push(match (looked_up.get(name), draft.constants.get(name)) {
                (Some((own, read)), _) if *read == indices && dims[own] == size => Some(own.clone()),
                (None, Some(constant)) if along_rows(&constant) => {
                    let row =
                        Tensor::new(name, constant.datatype(), &[constant.len()], constant.data().clone())?;
                    Some(draft.add_constant(row))
                }
                (None, None) if name.is_empty() => Some(String::new()),
                _ => None,
            });
        }
        let Some(inputs) = inputs.into_iter().collect::<Option<Vec<String>>>() else { continue };
        let table = draft.fresh(&format!("{made}/table"));
        dims.insert(table.clone(), size);
        looked_up.insert(made.clone(), (table.clone(), indices.clone()));
        draft.nodes[at] = draft.make("Gather", &[&table, &indices], &made, [("axis", Attribute::Int(0))]);
        (node.input, node.output) = (inputs, vec![table]);
        added.push(node);
    }
    draft.nodes.extend(added);
    Ok(())
}

/// Table and indices of a lookup of rows.
fn lookup<'a>(draft: &'a Draft, node: &'a NodeProto) -> Option<(&'a Tensor, &'a str)> {
    let table = draft.constants.get(node.at(0)?)?;
    let of_rows = node.is(&["Gather"]) && node.int("axis").unwrap_or(0) == 0 && table.dims().len() == 2;
    let is_small = table.datatype() == DataType::Float && table.len() <= LARGEST;
    Some((table, node.at(1)?)).filter(|_| of_rows && is_small)
}
