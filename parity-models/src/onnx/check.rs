//! Finds defects of a file before an engine does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prost::Message;
use serde::Serialize;

use super::domain::{canonical, full};
use super::external::External;
use super::node;
use super::proto::{FunctionName, GraphProto, ModelProto};
use super::topology::{cycle, given, reads, writes};
use super::{Tensor, Value};

/// A finding of the check. Nodes are named as in [`Node`](super::Node)'s messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)] // the messages explain the fields
pub enum Finding {
    Dangling { node: String, value: String },
    DanglingOutput { output: String },
    Duplicate { value: String },
    OutOfOrder { node: String, value: String },
    Cycle { nodes: Vec<String> },
    Unreadable { tensor: String, message: String },
    NoOpset { domain: String, node: String },
    UndeclaredShape { value: String },
    UnusedInitializer { tensor: String, bytes: u64 },
    UnusedInput { input: String },
    LocalFunction { node: String },
}

impl Finding {
    /// Whether engines will reject the file; otherwise the finding is only a remark.
    pub fn is_fatal(&self) -> bool {
        use Finding::*;
        !matches!(
            self,
            UnusedInitializer { .. } | UnusedInput { .. } | UndeclaredShape { .. } | LocalFunction { .. }
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dangling { node, value } => write!(f, "{node} reads '{value}', which no node produces"),
            Self::DanglingOutput { output } => write!(f, "no node produces output '{output}'"),
            Self::Duplicate { value } => write!(f, "two nodes produce '{value}'"),
            Self::OutOfOrder { node, value } => {
                write!(f, "{node} precedes the node that produces its input '{value}'")
            }
            Self::Cycle { nodes } => {
                write!(f, "nodes depend on each other in a cycle: {}", nodes.join(" -> "))
            }
            Self::Unreadable { tensor, message } => {
                write!(f, "cannot read constant '{tensor}': {message}")
            }
            Self::NoOpset { domain, node } => {
                write!(f, "{node} uses operator set '{domain}', whose version the file does not declare")
            }
            Self::UndeclaredShape { value } => write!(f, "the rank of '{value}' is not declared"),
            Self::UnusedInitializer { tensor, bytes } => {
                write!(f, "initialiser '{tensor}' ({bytes} bytes) is never used")
            }
            Self::UnusedInput { input } => write!(f, "input '{input}' is never used"),
            Self::LocalFunction { node } => {
                write!(f, "{node} calls a function of the file: some engines require it inlined")
            }
        }
    }
}

/// All findings, the fatal ones first.
pub(super) fn check(model: &ModelProto, external: &External) -> Vec<Finding> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let mut findings = names(graph);
    findings.extend(constants(graph, external));
    findings.extend(operators(model, graph));
    findings.extend(declarations(graph));
    findings.extend(unused(graph, external));
    findings.sort_by_key(|finding| !finding.is_fatal());
    findings
}

fn names(graph: &GraphProto) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    let known_before = given(graph);
    for (at, node) in graph.node.iter().enumerate() {
        for name in writes(node) {
            if known_before.contains(name) || *makers.entry(name).or_insert(at) != at {
                findings.push(Finding::Duplicate { value: name.into() });
            }
        }
    }
    findings.extend(twice(graph.initializer.iter().map(|tensor| tensor.name.as_str())));
    findings.extend(twice(graph.input.iter().map(|input| input.name.as_str())));
    let circle = cycle(graph);
    let in_circle: BTreeSet<usize> = circle.iter().copied().collect();
    for (at, node) in graph.node.iter().enumerate() {
        for value in reads(node).into_iter().filter(|name| !known_before.contains(name)) {
            let (node, value) = (node::label(at, node), value.to_owned());
            match makers.get(value.as_str()) {
                None => findings.push(Finding::Dangling { node, value }),
                Some(&maker) if maker >= at && !in_circle.contains(&at) => {
                    findings.push(Finding::OutOfOrder { node, value });
                }
                Some(_) => {}
            }
        }
    }
    if !circle.is_empty() {
        let nodes = circle.iter().map(|&at| node::label(at, &graph.node[at])).collect();
        findings.push(Finding::Cycle { nodes });
    }
    let outputs = graph.output.iter().map(|output| output.name.as_str());
    let missing = outputs.filter(|name| !known_before.contains(name) && !makers.contains_key(name));
    findings.extend(missing.map(|output| Finding::DanglingOutput { output: output.into() }));
    findings
}

fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let again = names.filter(|name| !seen.insert(*name)).collect::<BTreeSet<_>>();
    again.into_iter().map(|value| Finding::Duplicate { value: value.into() }).collect()
}

fn constants(graph: &GraphProto, external: &External) -> Vec<Finding> {
    let inside =
        graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.t.as_ref());
    let unreadable = |tensor| {
        let error = Tensor::from_proto(tensor, external).err()?;
        Some(Finding::Unreadable { tensor: tensor.name.clone(), message: error.to_string() })
    };
    graph.initializer.iter().chain(inside).filter_map(unreadable).collect()
}

fn operators(model: &ModelProto, graph: &GraphProto) -> Vec<Finding> {
    let declared: BTreeSet<&str> = model.opset_import.iter().map(|set| canonical(&set.domain)).collect();
    let functions: Vec<FunctionName> =
        model.functions.iter().filter_map(|function| FunctionName::decode(&**function).ok()).collect();
    let mut findings = Vec::new();
    for (at, node) in graph.node.iter().enumerate() {
        let domain = canonical(&node.domain);
        if !declared.contains(domain) {
            findings.push(Finding::NoOpset { domain: full(domain).into(), node: node::label(at, node) });
        }
        let is_call =
            |function: &FunctionName| canonical(&function.domain) == domain && function.name == node.op_type;
        if functions.iter().any(is_call) {
            findings.push(Finding::LocalFunction { node: node::label(at, node) });
        }
    }
    findings
}

fn declarations(graph: &GraphProto) -> Vec<Finding> {
    let values = graph.input.iter().chain(&graph.output).map(Value::from_proto);
    let undeclared = values.filter(|value| value.shape.is_none());
    undeclared.map(|value| Finding::UndeclaredShape { value: value.name }).collect()
}

fn unused(graph: &GraphProto, external: &External) -> Vec<Finding> {
    let mut used: BTreeSet<&str> = graph.node.iter().flat_map(reads).collect();
    used.extend(graph.output.iter().map(|output| output.name.as_str()));
    let constants = graph.initializer.iter().filter(|tensor| !used.contains(tensor.name.as_str()));
    let size = |tensor| Tensor::from_proto(tensor, external).map_or(0, |tensor| tensor.data().len() as u64);
    let constants = constants
        .map(|t| Finding::UnusedInitializer { tensor: t.name.clone(), bytes: size(t) })
        .collect::<Vec<_>>();
    let inputs = graph.input.iter().filter(|input| !used.contains(input.name.as_str()));
    let stored: BTreeSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = inputs.filter(|input| !stored.contains(input.name.as_str()));
    let inputs = inputs.map(|input| Finding::UnusedInput { input: input.name.clone() });
    inputs.chain(constants).collect()
}
