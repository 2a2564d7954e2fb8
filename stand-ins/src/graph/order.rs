//! Keeps a draft's nodes in execution order and removes nodes without readers.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use parm_parity_models::onnx::rewrite::Draft;

use super::Links;

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
