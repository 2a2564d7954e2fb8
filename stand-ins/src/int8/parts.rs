//! The layers that may be in 8 bits, and the work of each.

use std::collections::BTreeSet;

use parm_parity_models::onnx::rewrite::Draft;

use super::Scope;
use super::points::Points;
use crate::graph::{Links, NodeExt, Survey, multiplications_of};

/// Layers that are in 8 bits together, or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// What they make, which names them.
    pub(crate) layers: BTreeSet<String>,
    /// Their multiplications.
    pub(crate) work: f64,
}

/// Each layer that may be in 8 bits, in the order of the graph. None where sizes are not known.
pub(crate) fn parts(draft: &Draft, survey: &Survey) -> Vec<Part> {
    let Some(look) = survey.looks().first() else { return Vec::new() };
    let layers = Points::of(draft, &Links::of(draft), Scope::All).layers.into_iter();
    let part = |at: usize| {
        let node = &draft.nodes[at];
        let made = node.only_output()?.to_owned();
        Some(Part { layers: BTreeSet::from([made]), work: multiplications_of(node, look)? })
    };
    layers.filter_map(|layer| part(layer.at)).collect()
}
