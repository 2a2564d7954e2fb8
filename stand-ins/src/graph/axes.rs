//! The axes of a reduction, wherever its version of the operators has them: read and written.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, Tensor};

use super::NodeExt;

/// Counted from 0 on, of a value of this rank; `None` where they are computed or left out.
pub(crate) fn axes(draft: &Draft, node: &NodeProto, rank: i64) -> Option<Vec<i64>> {
    let axes = match (node.ints("axes"), node.at(1)) {
        (Some(axes), _) => axes.to_vec(),
        (None, Some(name)) => draft.constants.get(name)?.to_i64().ok()?,
        (None, None) => return None,
    };
    Some(axes.into_iter().map(|axis| if axis < 0 { axis + rank } else { axis }).collect())
}

/// Gives a node its axes as its version of the operators reads them.
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
