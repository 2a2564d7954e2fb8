//! Gives each reader its own copy of a weight.
//!
//! Some exporters store equal weights once and distribute them through `Identity` nodes. Equal values do not tie two
//! weights: training must be able to separate them, and widening one must not widen the other.

use std::collections::BTreeSet;

use super::super::Tensor;
use super::super::proto::NodeProto;
use super::draft::Draft;

/// Turns an `Identity` of a constant into a constant, and copies a shared weight for each reader after the first.
pub(super) fn unshare(draft: &mut Draft) {
    let outputs: BTreeSet<String> = draft.graph().output.iter().map(|output| output.name.clone()).collect();
    for node in std::mem::take(&mut draft.nodes) {
        match alias(draft, &node).filter(|copy| !outputs.contains(copy.name())) {
            Some(copy) => drop(draft.constants.insert(copy.name().to_owned(), copy)),
            None => draft.nodes.push(node),
        }
    }
    let mut seen = BTreeSet::new();
    let mut nodes = std::mem::take(&mut draft.nodes);
    for input in nodes.iter_mut().flat_map(|node| &mut node.input) {
        let is_weight = |draft: &Draft| {
            draft
                .constants
                .get(input.as_str())
                .is_some_and(|tensor| tensor.datatype().is_float() && !tensor.dims().is_empty())
        };
        if is_weight(draft) && !seen.insert(input.clone()) {
            *input = draft.add_constant(draft.constants[input.as_str()].clone());
        }
    }
    draft.nodes = nodes;
}

/// The constant behind an `Identity`, under its new name.
fn alias(draft: &Draft, node: &NodeProto) -> Option<Tensor> {
    let ([input], [output]) = (node.input.as_slice(), node.output.as_slice()) else { return None };
    let constant = draft.constants.get(input).filter(|_| node.is(&["Identity"]))?;
    Some(constant.clone().renamed(output))
}
