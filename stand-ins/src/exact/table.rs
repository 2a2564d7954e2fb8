//! Applies operators on looked-up rows to the table once.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, DataType, Defect, Tensor};

use crate::graph::{Formula, Links, NodeExt};

/// Maximum elements of a table: a lookup in a larger one saves no time.
const LARGEST: usize = 1 << 24;

/// Replaces value-by-value operators on rows of tables with new tables.
pub(super) fn precompute(draft: &mut Draft) -> Result<(), Defect> {
    // A lookup may still stand at the end: its readers must come behind it.
    crate::graph::sort(draft);
    // Positions and names do not change below, so one index is enough.
    let links = Links::of(draft);
    for at in 0..draft.nodes.len() {
        let Some((table, indices)) = computed(draft, &links, at)? else { continue };
        let made = draft.nodes[at].only_output().unwrap_or_default().to_owned();
        let table = draft.add_constant(table.renamed(&format!("{made}/table")));
        draft.nodes[at] = draft.make("Gather", &[&table, &indices], &made, [("axis", Attribute::Int(0))]);
    }
    Ok(())
}

/// The table of the outputs of node `at`, and the indices that select its rows.
fn computed(draft: &Draft, links: &Links, at: usize) -> Result<Option<(Tensor, String)>, Defect> {
    let node = &draft.nodes[at];
    let Some(formula) = Formula::of(node).filter(|_| node.only_output().is_some()) else { return Ok(None) };
    let (mut indices, mut operands) = (None, Vec::new());
    let mut dims = None;
    for name in &node.input {
        if name.is_empty() {
            operands.push(None);
        } else if let Some(constant) = draft.constants.get(name) {
            operands.push(Some(constant));
        } else if let Some((table, read)) = links.maker(name).and_then(|at| lookup(draft, &draft.nodes[at])) {
            if *indices.get_or_insert(read) != read || *dims.get_or_insert(table.dims()) != table.dims() {
                return Ok(None);
            }
            operands.push(Some(table));
        } else {
            return Ok(None);
        }
    }
    let (Some(indices), Some(&[rows, width])) = (indices, dims) else { return Ok(None) };
    let along_rows = |constant: &Tensor| {
        let (last, others) = constant.dims().split_last().unwrap_or((&1, &[]));
        others.iter().all(|&dim| dim == 1) && (*last == 1 || *last == width) && others.len() < 3
    };
    let is_table = |constant: &Tensor| constant.dims() == [rows, width];
    if !operands.iter().flatten().all(|constant| is_table(constant) || along_rows(constant)) {
        return Ok(None);
    }
    let operands: Vec<Option<Vec<f32>>> = operands
        .into_iter()
        .map(|constant| constant.map(Tensor::to_f32).transpose())
        .collect::<Result<_, _>>()?;
    let value = |place: usize| {
        let inputs: Vec<Option<f64>> = operands
            .iter()
            .map(|values| {
                let values = values.as_ref()?;
                let at = if values.len() == rows * width { place } else { place % width % values.len() };
                Some(values[at].into())
            })
            .collect();
        formula.apply(&inputs).map(|value| value as f32)
    };
    let Some(values) = (0..rows * width).map(value).collect::<Option<Vec<f32>>>() else { return Ok(None) };
    Ok(Some((Tensor::from_f32("", &[rows, width], &values)?, indices.to_owned())))
}

/// Table and indices of a lookup of rows.
fn lookup<'a>(draft: &'a Draft, node: &'a NodeProto) -> Option<(&'a Tensor, &'a str)> {
    let table = draft.constants.get(node.at(0)?)?;
    let of_rows = node.is(&["Gather"]) && node.int("axis").unwrap_or(0) == 0 && table.dims().len() == 2;
    let is_small = table.datatype() == DataType::Float && table.len() <= LARGEST;
    Some((table, node.at(1)?)).filter(|_| of_rows && is_small)
}
