//! Copies parts of a graph for each slot.

use std::collections::BTreeMap;

use super::super::proto::NodeProto;
use super::super::topology::reads;
use super::super::{Defect, Tensor};
use super::draft::Draft;

/// The names of one slot by the original names.
pub(super) type Names = BTreeMap<String, String>;

/// Whether the copies of a part share constants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Constants {
    /// Shared: the operators before the first layer are the same for every slot.
    Shared,
    /// Each copy has its own weights, so that training can tell the slots apart.
    Own,
}

/// The nodes to copy for one slot.
pub(super) struct Part<'a> {
    /// Their positions in the draft.
    pub(super) places: &'a [usize],
    pub(super) slot: usize,
    pub(super) constants: Constants,
}

/// Copies a part. `names` maps the originals' inputs to those of the copies, and receives the outputs.
pub(super) fn copy(draft: &mut Draft, part: Part<'_>, names: &mut Names) -> Result<Vec<NodeProto>, Defect> {
    let Part { places, slot, constants } = part;
    let mut copies = Vec::with_capacity(places.len());
    for &at in places {
        let mut node = draft.nodes[at].clone();
        rename(&mut node, names).map_err(|_| Defect::ControlFlow { node: draft.label(at) })?;
        for input in node.input.iter_mut().filter(|_| constants == Constants::Own) {
            let weight = draft.constants.get(input.as_str());
            if let Some(weight) = weight.filter(|weight| weight.datatype().is_float() && weight.len() > 1) {
                let own = weight.clone().renamed(&format!("{input}.slot{slot}"));
                *input = draft.add_constant(own);
            }
        }
        for output in node.output.iter_mut().filter(|output| !output.is_empty()) {
            let renamed = draft.fresh(&format!("{output}.slot{slot}"));
            names.insert(std::mem::replace(output, renamed.clone()), renamed);
        }
        if !node.name.is_empty() {
            node.name = draft.fresh(&format!("{}.slot{slot}", node.name));
        }
        copies.push(node);
    }
    Ok(copies)
}

/// The body of a control-flow node reads a renamed outer value.
pub(super) struct Captured;

/// Renames the inputs of `node`.
pub(super) fn rename(node: &mut NodeProto, names: &Names) -> Result<(), Captured> {
    let is_captured = |name: &str| names.contains_key(name) && !node.input.iter().any(|input| input == name);
    if reads(node).into_iter().any(is_captured) {
        return Err(Captured);
    }
    for input in &mut node.input {
        if let Some(renamed) = names.get(input) {
            input.clone_from(renamed);
        }
    }
    Ok(())
}

/// The split of a value into slots.
pub(super) struct Cut<'a> {
    pub(super) value: &'a str,
    pub(super) axis: i64,
    pub(super) slots: usize,
    /// Size of one slot, if it is known.
    pub(super) part: Option<usize>,
}

/// A node that splits a value into equal parts, and the names of the parts. The form of the sizes changed twice with
/// the operator set.
pub(super) fn split(draft: &mut Draft, cut: Cut<'_>) -> Result<(NodeProto, Vec<String>), Defect> {
    let Cut { value, axis, slots, part } = cut;
    let parts: Vec<String> = (0..slots).map(|slot| draft.fresh(&format!("{value}.slot{slot}"))).collect();
    let name = draft.fresh(&format!("{value}.split"));
    let mut node = draft.make("Split", &[value], &name, [("axis", axis.into())]);
    let sizes = part.map(|part| vec![part as i64; slots]);
    match sizes {
        Some(sizes) if draft.opset() >= 13 => {
            let sizes = Tensor::from_i64(&format!("{name}.sizes"), &[slots], &sizes)?;
            node.input.push(draft.add_constant(sizes));
        }
        Some(sizes) => node.set("split", sizes),
        None if draft.opset() >= 18 => node.set("num_outputs", slots as i64),
        None => {}
    }
    node.output = parts.clone();
    Ok((node, parts))
}
