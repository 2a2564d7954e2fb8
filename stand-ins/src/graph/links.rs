//! The maker and the readers of each value.

use std::collections::{BTreeSet, HashMap};

use parm_parity_models::onnx::rewrite::Draft;

/// An index of a draft's nodes; invalid as soon as nodes are added, removed or moved.
#[derive(Debug)]
pub(crate) struct Links {
    makers: HashMap<String, usize>,
    readers: HashMap<String, Vec<usize>>,
    /// Values that nodes' bodies may read by name, and the graph's outputs: they must stay.
    kept: BTreeSet<String>,
}

impl Links {
    pub(crate) fn of(draft: &Draft) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<String, Vec<usize>>::new());
        let mut kept: BTreeSet<String> =
            draft.graph().output.iter().map(|output| output.name.clone()).collect();
        for (at, node) in draft.nodes.iter().enumerate() {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                makers.insert(name.clone(), at);
            }
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                readers.entry(name.clone()).or_default().push(at);
            }
            let bodies =
                node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs));
            kept.extend(bodies.flat_map(|body| body.node.iter().flat_map(|node| node.input.clone())));
        }
        Self { makers, readers, kept }
    }

    /// The position of the node that makes `value`; `None` for inputs and constants.
    pub(crate) fn maker(&self, value: &str) -> Option<usize> {
        self.makers.get(value).copied()
    }

    /// The positions of the nodes that read `value`; a node that reads it twice is listed twice.
    pub(crate) fn readers(&self, value: &str) -> &[usize] {
        self.readers.get(value).map_or(&[], Vec::as_slice)
    }

    /// Whether `value` must keep its name because something other than a node's input refers to it.
    pub(crate) fn is_kept(&self, value: &str) -> bool {
        self.kept.contains(value)
    }

    /// The only node that reads `value`; `None` if there are several.
    pub(crate) fn only_reader(&self, value: &str) -> Option<usize> {
        match self.readers(value) {
            [one] if !self.is_kept(value) => Some(*one),
            _ => None,
        }
    }
}
