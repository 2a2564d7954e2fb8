//! Roles of a graph's constants: which ones training may change.
//!
//! A file does not mark its learned numbers, but the operator that reads a constant shows its role. Filters and
//! biases of convolutions, matrices, scales of normalisations and rows of embeddings are parameters. The running
//! statistics of batch normalisations are buffers, which follow the data. Exponents, bounds, shapes and all others
//! stay. A summand or factor with more than one element is a parameter only behind the first parameter of the graph:
//! before it, it normalises the input. Weights in a `Constant` node count too, and so do weights behind a layout
//! operator.

use std::collections::{BTreeMap, BTreeSet};

use parm_parity_models::onnx::{Graph, Node};

/// The role of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Parameter,
    /// A running statistic of a batch normalisation.
    Buffer,
}

/// The roles of constants by name; constants without a role are missing.
pub(crate) fn roles(graph: &Graph) -> BTreeMap<String, Role> {
    let learned = learned(graph);
    let mut roles = BTreeMap::new();
    for (name, tensor) in constants(graph) {
        if tensor && learned.contains(name) {
            roles.insert(name.to_owned(), Role::Parameter);
        }
    }
    for node in graph.nodes.iter().filter(|node| node.is("BatchNormalization")) {
        for name in [3, 4].into_iter().filter_map(|at| node.input(at)) {
            roles.insert(name.to_owned(), Role::Buffer);
        }
    }
    roles
}

/// Constants by name, and whether they are floats with elements.
fn constants(graph: &Graph) -> impl Iterator<Item = (&str, bool)> {
    let held =
        graph.initializers.iter().map(|(name, t)| (name.as_str(), t.datatype().is_float() && !t.is_empty()));
    let made = graph.nodes.iter().filter_map(|node| {
        let tensor = node.constant().ok().flatten()?;
        let name = node.output(0)?;
        Some((name, tensor.datatype().is_float() && !tensor.is_empty()))
    });
    held.chain(made)
}

/// Names of the values that are used as weights, followed back through layout operators.
fn learned(graph: &Graph) -> BTreeSet<&str> {
    let behind = behind_parameters(graph);
    let single = |name: &str| graph.constant(name).ok().flatten().is_none_or(|tensor| tensor.len() == 1);
    let mut wanted = BTreeSet::new();
    for node in &graph.nodes {
        wanted.extend(weights(node));
        if node.is("Add") || node.is("Mul") {
            let (Some(left), Some(right)) = (node.input(0), node.input(1)) else { continue };
            for (one, other) in [(left, right), (right, left)] {
                if behind.contains(other) && !single(one) {
                    wanted.insert(one);
                }
            }
        }
    }
    for node in graph.nodes.iter().rev().filter(|node| is_layout(node)) {
        if node.output(0).is_some_and(|output| wanted.contains(output)) {
            let sources = if node.is("Concat") { node.inputs.len() } else { 1 };
            wanted.extend((0..sources).filter_map(|at| node.input(at)));
        }
    }
    wanted
}

/// The inputs that an operator uses as weights whenever they are constants.
fn weights(node: &Node) -> impl Iterator<Item = &str> {
    let places: &[usize] = match node.op.as_str() {
        _ if !node.domain.is_empty() => &[],
        "Conv"
        | "BatchNormalization"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization" => &[1, 2],
        "Gemm" => &[0, 1, 2],
        "MatMul" => &[0, 1],
        "PRelu" => &[1],
        "Gather" => &[0],
        _ => &[],
    };
    places.iter().filter_map(|&at| node.input(at))
}

/// The values that depend on an input of the graph and on a weight.
fn behind_parameters(graph: &Graph) -> BTreeSet<&str> {
    let mut fed: BTreeSet<&str> = graph.inputs.iter().map(|input| input.name.as_str()).collect();
    let mut behind = BTreeSet::new();
    for node in &graph.nodes {
        let reads = |set: &BTreeSet<&str>| {
            (0..node.inputs.len()).filter_map(|at| node.input(at)).any(|n| set.contains(n))
        };
        if !reads(&fed) {
            continue;
        }
        if reads(&behind) || weights(node).any(|name| !fed.contains(name)) {
            behind.extend(node.outputs.iter().map(String::as_str));
        }
        fed.extend(node.outputs.iter().map(String::as_str));
    }
    behind
}

fn is_layout(node: &Node) -> bool {
    const LAYOUT: [&str; 9] =
        ["Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Concat", "Cast"];
    node.domain.is_empty() && LAYOUT.contains(&node.op.as_str())
}
