//! Operators that commute with concatenating rows.
//!
//! Concatenating the slots' rows and then applying one of these gives the same as applying it to each row and then
//! concatenating the results. So no copy for each slot is needed before the first layer.

use super::super::proto::NodeProto;
use super::super::{Kind, Tensor};
use super::draft::Draft;

/// The declaration of the graph's only input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Number of rows, if it is fixed.
    pub(super) batch: Option<usize>,
    /// Values in a row, if their number is fixed.
    pub(super) size: Option<usize>,
}

/// The effect of a node on concatenated rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// Elementwise.
    Elementwise,
    /// Flattens each row.
    Flatten,
}

/// Recognises `node`; `None` means that it must run once for each slot.
pub(super) fn plain(draft: &Draft, node: &NodeProto, row: Row) -> Option<Plain> {
    match Kind::of(node) {
        Kind::Unary | Kind::Same => return Some(Plain::Elementwise),
        Kind::Joint => {
            let constants = node.input.iter().filter_map(|name| draft.constants.get(name));
            let is_scalar = |tensor: &&Tensor| tensor.len() == 1 && tensor.dims().len() <= 1;
            let is_of_one = constants.filter(is_scalar).count() + 1 == node.input.len();
            return is_of_one.then_some(Plain::Elementwise);
        }
        _ => {}
    }
    let flattens_batch = node.is(&["Flatten"]) && node.int("axis").unwrap_or(1) == 1;
    let reshapes_flat = node.is(&["Reshape"]) && flattens(draft, node, row).is_some();
    (flattens_batch || reshapes_flat).then_some(Plain::Flatten)
}

/// The target of a `Reshape` that flattens each row, given by constants: the batch, then -1 or the row's size.
pub(super) fn flattens(draft: &Draft, node: &NodeProto, row: Row) -> Option<[i64; 2]> {
    let target = draft.constants.get(node.input.get(1)?)?.to_i64().ok()?;
    let is_zero_a_copy = node.int("allowzero").unwrap_or(0) == 0;
    let is_batch =
        |dim: i64| (dim == 0 && is_zero_a_copy) || row.batch.is_some_and(|batch| dim == batch as i64);
    match target[..] {
        [batch, -1] if is_batch(batch) => Some([batch, -1]),
        [batch, size] if batch == -1 || is_batch(batch) => {
            row.size.filter(|&row| row as i64 == size).map(|_| [batch, size])
        }
        _ => None,
    }
}
