//! The layers that can be in 8 bits, with the work of each.

use std::collections::BTreeSet;

use parm_parity_models::onnx::rewrite::Draft;

use super::Scope;
use super::points::Points;
use crate::graph::{Links, Survey, multiplications};

/// Layers that are in 8 bits together, or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    /// Their outputs, which serve as names.
    pub(crate) layers: BTreeSet<String>,
    /// Their multiplications.
    pub(crate) work: f64,
}

/// Each layer that can be in 8 bits, in graph order. Empty if sizes are unknown.
pub(crate) fn parts(draft: &Draft, survey: &Survey) -> Vec<Part> {
    let Some(look) = survey.looks().first() else { return Vec::new() };
    let layers = Points::of(draft, &Links::of(draft), Scope::All).layers.into_iter();
    let part = |at: usize| {
        let node = &draft.nodes[at];
        let made = node.only_output()?.to_owned();
        Some(Part { layers: BTreeSet::from([made]), work: multiplications(node, look)? })
    };
    layers.filter_map(|layer| part(layer.at)).collect()
}
