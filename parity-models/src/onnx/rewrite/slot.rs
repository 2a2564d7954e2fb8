//! What happens to the operators around the widened layers: copied for each slot, or left alone because they commute with
//! concatenating rows. Concatenating the slots' rows and then applying such an operator gives the same as applying it to
//! each row and then concatenating the results.

use std::collections::BTreeMap;

use super::super::proto::{NodeProto, reads};
use super::super::{Defect, Kind, Tensor};
use super::draft::Draft;

/// The names of one slot by the original names.
pub type Names = BTreeMap<String, String>;

impl Draft {
    /// Copies nodes under other names. `names` maps the originals' inputs to those of the copies, and receives the outputs.
    /// The copies share constants, or have weights of their own, so that training can tell them apart.
    pub fn copy(
        &mut self,
        places: &[usize],
        (suffix, has_own_weights): (&str, bool),
        names: &mut Names,
    ) -> Result<Vec<NodeProto>, Defect> {
        let mut copies = Vec::with_capacity(places.len());
        for &at in places {
            let mut node = self.nodes[at].clone();
            rename(&mut node, names).ok_or_else(|| Defect::control_flow(&self.label(at)))?;
            for input in node.input.iter_mut().filter(|_| has_own_weights) {
                let weight = self.constants.get(input.as_str());
                if let Some(weight) = weight.filter(|weight| weight.datatype().is_float() && weight.len() > 1)
                {
                    let own = weight.clone().renamed(&format!("{input}.{suffix}"));
                    *input = self.add_constant(own);
                }
            }
            for output in node.output.iter_mut().filter(|output| !output.is_empty()) {
                let renamed = self.fresh(&format!("{output}.{suffix}"));
                names.insert(std::mem::replace(output, renamed.clone()), renamed);
            }
            if !node.name.is_empty() {
                node.name = self.fresh(&format!("{}.{suffix}", node.name));
            }
            copies.push(node);
        }
        Ok(copies)
    }
}

/// Renames what a node reads; `None` if its body reads a renamed outer value.
pub(super) fn rename(node: &mut NodeProto, names: &Names) -> Option<()> {
    let is_captured = |name: &str| names.contains_key(name) && !node.input.iter().any(|input| input == name);
    if reads(node).into_iter().any(is_captured) {
        return None;
    }
    for input in &mut node.input {
        if let Some(renamed) = names.get(input) {
            input.clone_from(renamed);
        }
    }
    Some(())
}

/// A node that splits a value along an axis into equal parts, of this size if it is known, and the names of the parts. The
/// form of the sizes changed twice with the operator set.
pub(super) fn split(
    draft: &mut Draft,
    (value, axis): (&str, i64),
    (slots, part): (usize, Option<usize>),
) -> Result<(NodeProto, Vec<String>), Defect> {
    let parts: Vec<String> = (0..slots).map(|slot| draft.fresh(&format!("{value}.slot{slot}"))).collect();
    let name = draft.fresh(&format!("{value}.split"));
    let mut node = draft.make("Split", &[value], &name, [("axis", axis.into())]);
    match part {
        Some(part) => draft.give(&mut node, "split", &vec![part as i64; slots], 13)?,
        None if draft.opset() >= 18 => node.set("num_outputs", slots as i64),
        None => {}
    }
    node.output = parts.clone();
    Ok((node, parts))
}

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
    Elementwise,
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
