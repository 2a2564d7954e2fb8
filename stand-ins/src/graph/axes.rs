//! The axes of a reduction, wherever its version of the operators has them.

use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;

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
