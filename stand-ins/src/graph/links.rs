//! The maker and the readers of each value, and the order of nodes that follows from them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

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

/// Moves every node behind its inputs; otherwise the order is kept.
pub(crate) fn sort(draft: &mut Draft) {
    let links = Links::of(draft);
    let makers = |at: usize| {
        let made = draft.nodes[at].input.iter().filter_map(|name| links.maker(name));
        made.collect::<BTreeSet<usize>>()
    };
    let mut waits: Vec<usize> = (0..draft.nodes.len()).map(|at| makers(at).len()).collect();
    let mut readers = vec![Vec::new(); draft.nodes.len()];
    for at in 0..draft.nodes.len() {
        makers(at).into_iter().for_each(|maker| readers[maker].push(at));
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..waits.len()).filter(|&at| waits[at] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for &reader in &readers[at] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    // A valid graph has no cycle, and no rewrite makes one.
    debug_assert_eq!(order.len(), draft.nodes.len());
    let mut nodes: Vec<_> = std::mem::take(&mut draft.nodes).into_iter().map(Some).collect();
    draft.nodes = order.into_iter().filter_map(|at| nodes[at].take()).collect();
}

/// Removes nodes whose outputs have no reader.
pub(crate) fn sweep(draft: &mut Draft) {
    loop {
        let links = Links::of(draft);
        let is_wanted = |name: &String| links.is_kept(name) || !links.readers(name).is_empty();
        let before = draft.nodes.len();
        draft.nodes.retain(|node| node.output.iter().any(is_wanted));
        if draft.nodes.len() == before {
            return;
        }
    }
}

/// Removes nodes without readers and declarations that no longer hold, and brings the nodes into order.
pub(crate) fn tidy(draft: &mut Draft) {
    draft.forget(|_| true);
    sweep(draft);
    sort(draft);
}
