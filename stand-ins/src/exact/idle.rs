//! Removes nodes that pass on their input unchanged, and replaces computed targets that are constant.

use std::collections::HashMap;

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Kind, Tensor};

use crate::graph::{Links, Size, Survey, types};

/// Slice ends from here on mean "everything": exporters write a large number for the end.
const EVERYTHING: i64 = 1_000_000_000;

/// Replaces the computed target of a `Reshape` with a constant if it always has the same value.
pub(super) fn settle(draft: &mut Draft, survey: &Survey) -> Result<(), Defect> {
    for at in 0..draft.nodes.len() {
        let node = &draft.nodes[at];
        let (Some(target), Some(made)) = (node.at(1), node.only_output()) else { continue };
        if !node.is(&["Reshape"]) || draft.constants.contains_key(target) {
            continue;
        }
        let Some(sizes) = survey.sizes(made) else { continue };
        let varying = sizes.iter().filter(|size| matches!(size, Size::Rows(_))).count();
        // With zero elements, the one open size could not be inferred.
        if varying > 1 || sizes.contains(&Size::Fixed(0)) {
            continue;
        }
        let target = sizes.iter().map(|size| match size {
            Size::Fixed(size) => *size as i64,
            Size::Rows(_) => -1,
        });
        let target: Vec<i64> = target.collect();
        let name = format!("{made}/target");
        let name = draft.add_constant(Tensor::from_i64(&name, &[target.len()], &target)?);
        draft.nodes[at].input[1] = name;
    }
    Ok(())
}

/// Connects the readers of idle nodes to the inputs of these nodes.
pub(super) fn bypass(draft: &mut Draft, survey: &Survey) {
    let (links, types) = (Links::of(draft), types(draft));
    let mut instead: HashMap<String, String> = HashMap::new();
    for node in &draft.nodes {
        let Some(made) = node.only_output().filter(|made| !links.is_kept(made)) else { continue };
        if let Some(read) = node.at(0).filter(|read| is_idle(draft, node, (read, made), survey, &types)) {
            let read = instead.get(read).cloned().unwrap_or_else(|| read.to_owned());
            instead.insert(made.to_owned(), read);
        }
    }
    for name in draft.nodes.iter_mut().flat_map(|node| &mut node.input) {
        if let Some(read) = instead.get(name) {
            name.clone_from(read);
        }
    }
    look_through(draft, survey);
}

/// Removes `Expand` before operators that broadcast.
fn look_through(draft: &mut Draft, survey: &Survey) {
    let links = Links::of(draft);
    for at in 0..draft.nodes.len() {
        let node = &draft.nodes[at];
        let broadcasts = Kind::of(node).is_by_value() || Kind::of(node) == Kind::Truth;
        let (Some(made), [_, _]) = (node.only_output(), &node.input[..]) else { continue };
        let Some(sizes) = survey.sizes(made).filter(|_| broadcasts).map(<[Size]>::to_vec) else { continue };
        for place in 0..2 {
            let node = &draft.nodes[at];
            let expansion = links.maker(&node.input[place]).map(|at| &draft.nodes[at]);
            let Some(source) = expansion.filter(|node| node.is(&["Expand"])).and_then(|node| node.at(0))
            else {
                continue;
            };
            if survey.joined(source, &node.input[1 - place]).as_ref() == Some(&sizes) {
                draft.nodes[at].input[place] = source.to_owned();
            }
        }
    }
}

fn is_idle(
    draft: &Draft,
    node: &NodeProto,
    (read, made): (&str, &str),
    survey: &Survey,
    types: &HashMap<String, DataType>,
) -> bool {
    let keeps_sizes = || survey.sizes(read).is_some_and(|sizes| survey.sizes(made) == Some(sizes));
    match node.op_type.as_str() {
        _ if !node.is(&[&node.op_type]) => false,
        "Identity" => true,
        // Has no effect in inference.
        "Dropout" => node.at(2).is_none(),
        "Cast" => types.get(read).is_some_and(|datatype| types.get(made) == Some(datatype)),
        "Expand" | "Reshape" => keeps_sizes(),
        "Slice" => keeps_sizes() && takes_everything(draft, node, survey.sizes(read).unwrap_or_default()),
        "Transpose" => {
            node.ints("perm").is_some_and(|perm| (0..).zip(perm).all(|(place, axis)| place == *axis))
        }
        "Concat" => node.input.len() == 1,
        _ => false,
    }
}

/// Whether a slice that keeps fixed sizes also keeps any number of rows.
fn takes_everything(draft: &Draft, node: &NodeProto, sizes: &[Size]) -> bool {
    let numbers = |place: usize| draft.constants.get(node.at(place)?)?.to_i64().ok();
    let (Some(starts), Some(ends)) = (numbers(1), numbers(2)) else { return false };
    let axes = numbers(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = numbers(4).unwrap_or_else(|| vec![1; starts.len()]);
    let rank = sizes.len() as i64;
    let mut parts = starts.iter().zip(&ends).zip(axes.iter().zip(&steps));
    parts.all(|((&start, &end), (&axis, &step))| {
        let axis = if axis < 0 { axis + rank } else { axis };
        let is_fixed =
            usize::try_from(axis).is_ok_and(|axis| matches!(sizes.get(axis), Some(Size::Fixed(_))));
        step == 1 && (is_fixed || (start == 0 && end >= EVERYTHING))
    })
}
