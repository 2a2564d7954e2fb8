//! The producers and readers of values by name, including bodies of control-flow nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::proto::{GraphProto, NodeProto};

/// The names that a node requires: its inputs and the outer values that its bodies capture.
pub(super) fn reads(node: &NodeProto) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = node.input.iter().map(String::as_str).filter(|n| !n.is_empty()).collect();
    for attribute in &node.attribute {
        for body in attribute.g.iter().chain(&attribute.graphs) {
            names.extend(captures(body));
        }
    }
    names
}

/// The names that a node produces.
pub(super) fn writes(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.output.iter().map(String::as_str).filter(|name| !name.is_empty())
}

/// The names that callers or constants provide before any node runs.
pub(super) fn given(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let constants = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    inputs.chain(constants).chain(sparse.map(|values| values.name.as_str())).collect()
}

/// Positions of the nodes that depend on each other in a cycle, the first in the file first; empty if there is none. If
/// several nodes produce a name, the first counts.
pub(super) fn cycle(graph: &GraphProto) -> Vec<usize> {
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in graph.node.iter().enumerate() {
        writes(node).for_each(|name| _ = makers.entry(name).or_insert(at));
    }
    let mut waits: Vec<usize> = vec![0; graph.node.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.node.len()];
    for (at, node) in graph.node.iter().enumerate() {
        for maker in reads(node).into_iter().filter_map(|name| makers.get(name)) {
            waits[at] += 1;
            readers[*maker].push(at);
        }
    }
    let mut ready: VecDeque<usize> = (0..waits.len()).filter(|&at| waits[at] == 0).collect();
    while let Some(at) = ready.pop_front() {
        for &reader in &readers[at] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push_back(reader);
            }
        }
    }
    circle(&readers, &waits)
}

/// A blocked node is in a cycle or depends on one: following its inputs backwards leads into the cycle.
/// Each step reads one entry, because a file may have a million blocked nodes.
fn circle(readers: &[Vec<usize>], waits: &[usize]) -> Vec<usize> {
    let waiting = |at: &usize| waits[*at] > 0;
    let mut maker_of = vec![None; waits.len()];
    for maker in (0..waits.len()).rev().filter(waiting) {
        readers[maker].iter().for_each(|&reader| maker_of[reader] = Some(maker));
    }
    let Some(mut at) = (0..waits.len()).find(waiting) else { return Vec::new() };
    let mut path = vec![at];
    let mut place_of = vec![None; waits.len()];
    place_of[at] = Some(0);
    while let Some(maker) = maker_of[at] {
        if let Some(start) = place_of[maker] {
            let mut circle = path.split_off(start);
            circle.reverse();
            let first = (0..circle.len()).min_by_key(|&place| circle[place]).unwrap_or_default();
            circle.rotate_left(first);
            return circle;
        }
        place_of[maker] = Some(path.len());
        path.push(maker);
        at = maker;
    }
    path
}

fn captures(body: &GraphProto) -> BTreeSet<&str> {
    let mut known = given(body);
    let mut captured = BTreeSet::new();
    for node in &body.node {
        captured.extend(reads(node).into_iter().filter(|name| !known.contains(name)));
        known.extend(writes(node));
    }
    let outputs = body.output.iter().map(|output| output.name.as_str());
    captured.extend(outputs.filter(|name| !known.contains(name)));
    captured
}
