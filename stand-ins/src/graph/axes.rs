//! Reads and writes the axes of a reduction in every operator version.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, Tensor};

use super::NodeExt;

/// The axes, counted from 0, of a value of this rank; `None` if they are computed or left out.
pub(crate) fn axes(draft: &Draft, node: &NodeProto, rank: i64) -> Option<Vec<i64>> {
    let axes = match (node.ints("axes"), node.at(1)) {
        (Some(axes), _) => axes.to_vec(),
        (None, Some(name)) => draft.constants.get(name)?.to_i64().ok()?,
        (None, None) => return None,
    };
    Some(axes.into_iter().map(|axis| if axis < 0 { axis + rank } else { axis }).collect())
}

/// Sets the axes of a node as its operator version expects them.
pub(crate) fn with_axes(
    draft: &mut Draft,
    mut node: NodeProto,
    numbers: Vec<i64>,
    as_input_from: i64,
) -> NodeProto {
    if draft.opset() < as_input_from {
        node.attribute.push(Attribute::Ints(numbers).to_proto("axes"));
    } else if let Ok(tensor) = Tensor::from_i64(&format!("{}/axes", node.name), &[numbers.len()], &numbers) {
        node.input.push(draft.add_constant(tensor));
    }
    node
}
