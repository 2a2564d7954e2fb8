//! A weight of its own for every reader.
//!
//! Some exporters store equal weights once and hand them on through `Identity` nodes. That two weights are equal today
//! does not tie them: training must be able to move them apart, and widening one must not widen the other.

use std::collections::BTreeSet;

use super::super::Tensor;
use super::super::proto::NodeProto;
use super::draft::{Draft, is_one_of};

/// Turns `Identity` of a constant into a constant, and gives each reader but the first its own copy of a weight.
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
                .is_some_and(|tensor| tensor.datatype().is_float() && tensor.len() > 1)
        };
        if is_weight(draft) && !seen.insert(input.clone()) {
            *input = draft.add_constant(draft.constants[input.as_str()].clone());
        }
    }
    draft.nodes = nodes;
}

/// The constant that an `Identity` hands on, under its new name.
fn alias(draft: &Draft, node: &NodeProto) -> Option<Tensor> {
    let ([input], [output]) = (node.input.as_slice(), node.output.as_slice()) else { return None };
    let constant = draft.constants.get(input).filter(|_| is_one_of(node, &["Identity"]))?;
    Some(constant.clone().renamed(output))
}
