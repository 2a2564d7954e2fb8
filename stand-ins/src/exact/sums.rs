//! Replaces a sum over the axis before the last with a product with a row of ones.
//!
//! Engines sum quickly along the last axis and number by number along others: a layer normalisation over positions
//! spends more time on its two sums than on the rest. A product reads the same numbers in memory order.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Defect, Tensor};

use crate::graph::{NodeExt, Size, Survey, axes, types, with_axes};

/// Shorter sums take no time.
const FEWEST: usize = 16;

/// Replaces sums and means with products.
pub(super) fn multiply(draft: &mut Draft, survey: &Survey) -> Result<(), Defect> {
    let types = types(draft);
    for at in 0..draft.nodes.len() {
        let is_float = draft.nodes[at].at(0).and_then(|read| types.get(read)) == Some(&DataType::Float);
        let summed = summed(draft, survey, &draft.nodes[at]).filter(|_| is_float);
        let Some((count, axis)) = summed else { continue };
        let node = draft.nodes[at].clone();
        let (Some(read), Some(made)) = (node.at(0), node.only_output()) else { continue };
        let each = if node.is(&["ReduceMean"]) { 1.0 / count as f32 } else { 1.0 };
        let ones = Tensor::from_f32(&format!("{made}/ones"), &[1, count], &vec![each; count])?;
        let ones = draft.add_constant(ones);
        if node.int("keepdims").unwrap_or(1) != 0 {
            draft.nodes[at] = draft.make("MatMul", &[&ones, read], made, []);
            continue;
        }
        let sums = draft.fresh(&format!("{made}/sums"));
        draft.nodes[at] = draft.make("MatMul", &[&ones, read], &sums, []);
        let squeeze = draft.make("Squeeze", &[&sums], made, []);
        let squeeze = with_axes(draft, squeeze, vec![axis], 13);
        draft.nodes.push(squeeze);
    }
    Ok(())
}

/// The length of each sum, and its axis.
fn summed(draft: &Draft, survey: &Survey, node: &NodeProto) -> Option<(usize, i64)> {
    let sizes = survey.sizes(node.at(0).filter(|_| node.is(&["ReduceSum", "ReduceMean"]))?)?;
    let rank = sizes.len() as i64;
    let [axis] = axes(draft, node, rank)?[..] else { return None };
    // The rows are not one of its dimensions, and more than one number per row remains.
    let [_, .., Size::Fixed(count), Size::Fixed(beside)] = sizes else { return None };
    (axis == rank - 2 && rank > 2 && *count >= FEWEST && *beside > 1).then_some((*count, axis))
}
