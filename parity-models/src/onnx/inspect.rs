//! The report of a model, as text and, serialised, for scripts, with the defects that are found before an engine does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prost::Message;
use serde::Serialize;

use super::graph::label;
use super::model::External;
use super::proto::{FunctionName, GraphProto, ModelProto, Order, canonical, full, given, reads, writes};
use super::{Model, Tensor, Value};

/// The output of `parm models inspect`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Program and version that wrote the file.
    pub producer: String,
    /// Version of the file format.
    pub ir_version: i64,
    /// Operator sets (`ai.onnx` is ONNX's own) and their versions.
    pub opsets: BTreeMap<String, i64>,
    /// The graph's name.
    pub graph: String,
    /// Inputs that a caller must supply.
    pub inputs: Vec<Value>,
    /// Outputs.
    pub outputs: Vec<Value>,
    /// Number of nodes of each operator (without bodies of control-flow nodes).
    pub operators: BTreeMap<String, usize>,
    /// Elements of all floating-point initialisers.
    pub parameters: u64,
    /// Bytes of all initialisers, by element type.
    pub weights: BTreeMap<String, u64>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Metadata of the exporter.
    pub metadata: BTreeMap<String, String>,
    /// Findings, the fatal ones first.
    pub findings: Vec<Finding>,
}

impl Inspection {
    /// Whether engines can be expected to load the file.
    pub fn is_sound(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_fatal)
    }
}

impl Model {
    /// Describes and checks the model. Unreadable constants are findings, not errors.
    pub fn inspect(&self) -> Inspection {
        let proto = self.proto();
        let graph = proto.graph.clone().unwrap_or_default();
        let named = |name: &str| full(canonical(name)).to_owned();
        let is_constant = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
        let mut operators = BTreeMap::new();
        for node in &graph.node {
            let name = match canonical(&node.domain) {
                "" => node.op_type.clone(),
                domain => format!("{domain}.{}", node.op_type),
            };
            *operators.entry(name).or_default() += 1;
        }
        let constants = graph.initializer.iter().filter_map(|t| Tensor::from_proto(t, self.external()).ok());
        let (mut parameters, mut weights) = (0, BTreeMap::new());
        for tensor in constants {
            parameters += if tensor.datatype().is_float() { tensor.len() as u64 } else { 0 };
            *weights.entry(tensor.datatype().to_string()).or_default() += tensor.data().len() as u64;
        }
        let inputs = graph.input.iter().filter(|input| !is_constant(&input.name));
        Inspection {
            producer: format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned(),
            ir_version: proto.ir_version,
            opsets: proto.opset_import.iter().map(|set| (named(&set.domain), set.version)).collect(),
            graph: graph.name.clone(),
            inputs: inputs.map(Value::from_proto).collect(),
            outputs: graph.output.iter().map(Value::from_proto).collect(),
            operators,
            parameters,
            weights,
            file_bytes: self.bytes().len() as u64,
            metadata: proto.metadata_props.iter().map(|e| (e.key.clone(), e.value.clone())).collect(),
            findings: check(proto, self.external()),
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opsets: Vec<String> =
            self.opsets.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let producer = if self.producer.is_empty() { "unknown" } else { &self.producer };
        writeln!(f, "producer    {producer} (format {}, operators {})", self.ir_version, opsets.join(", "))?;
        for (label, values) in [("input ", &self.inputs), ("output", &self.outputs)] {
            values.iter().try_for_each(|value| writeln!(f, "{label}      {value}"))?;
        }
        let weights: u64 = self.weights.values().sum();
        writeln!(f, "parameters  {} ({} of weights)", self.parameters, Bytes(weights))?;
        writeln!(f, "file        {}", Bytes(self.file_bytes))?;
        let mut operators: Vec<(&String, &usize)> = self.operators.iter().collect();
        operators.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
        let operators: Vec<String> =
            operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "operators   {}", operators.join(", "))?;
        for (key, value) in &self.metadata {
            writeln!(f, "metadata    {key} = {value}")?;
        }
        for finding in &self.findings {
            writeln!(f, "{}     {finding}", if finding.is_fatal { "error  " } else { "note   " })?;
        }
        if self.findings.is_empty() {
            writeln!(f, "checks      passed")?;
        }
        Ok(())
    }
}

/// A size in readable units.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small if small < 1 << 10 => write!(f, "{small} B"),
            medium if medium < 1 << 20 => write!(f, "{:.1} KiB", medium as f64 / 1024.0),
            large => write!(f, "{:.1} MiB", large as f64 / (1 << 20) as f64),
        }
    }
}

/// A finding of the check, a sentence. Nodes are named as in [`Node`](super::Node)'s messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was found.
    pub message: String,
    /// Whether engines will reject the file; otherwise the finding is only a remark.
    pub is_fatal: bool,
}

impl Finding {
    fn fatal(message: String) -> Self {
        Self { message, is_fatal: true }
    }

    fn remark(message: String) -> Self {
        Self { message, is_fatal: false }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// All findings, the fatal ones first.
fn check(model: &ModelProto, external: &External) -> Vec<Finding> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let mut findings = names(graph);
    findings.extend(constants(graph, external));
    findings.extend(operators(model, graph));
    findings.extend(declarations(graph));
    findings.extend(unused(graph, external));
    findings.sort_by_key(|finding| !finding.is_fatal);
    findings
}

fn names(graph: &GraphProto) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    let known_before = given(graph);
    for (at, node) in graph.node.iter().enumerate() {
        for name in writes(node) {
            if known_before.contains(name) || *makers.entry(name).or_insert(at) != at {
                findings.push(duplicate(name));
            }
        }
    }
    findings.extend(twice(graph.initializer.iter().map(|tensor| tensor.name.as_str())));
    findings.extend(twice(graph.input.iter().map(|input| input.name.as_str())));
    let circle = cycle(graph);
    let in_circle: BTreeSet<usize> = circle.iter().copied().collect();
    for (at, node) in graph.node.iter().enumerate() {
        for value in reads(node).into_iter().filter(|name| !known_before.contains(name)) {
            let node = label(at, node);
            match makers.get(value) {
                None => {
                    findings.push(Finding::fatal(format!("{node} reads '{value}', which no node produces")));
                }
                Some(&maker) if maker >= at && !in_circle.contains(&at) => findings.push(Finding::fatal(
                    format!("{node} precedes the node that produces its input '{value}'"),
                )),
                Some(_) => {}
            }
        }
    }
    if !circle.is_empty() {
        let nodes: Vec<String> = circle.iter().map(|&at| label(at, &graph.node[at])).collect();
        let nodes = nodes.join(" -> ");
        findings.push(Finding::fatal(format!("nodes depend on each other in a cycle: {nodes}")));
    }
    let outputs = graph.output.iter().map(|output| output.name.as_str());
    let missing = outputs.filter(|name| !known_before.contains(name) && !makers.contains_key(name));
    findings.extend(missing.map(|output| Finding::fatal(format!("no node produces output '{output}'"))));
    findings
}

fn duplicate(value: &str) -> Finding {
    Finding::fatal(format!("two nodes produce '{value}'"))
}

fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let again = names.filter(|name| !seen.insert(*name)).collect::<BTreeSet<_>>();
    again.into_iter().map(duplicate).collect()
}

fn constants(graph: &GraphProto, external: &External) -> Vec<Finding> {
    let inside =
        graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.t.as_ref());
    let unreadable = |tensor| {
        let error = Tensor::from_proto(tensor, external).err()?;
        Some(Finding::fatal(format!("cannot read constant '{}': {error}", tensor.name)))
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
            let (node, domain) = (label(at, node), full(domain));
            findings.push(Finding::fatal(format!(
                "{node} uses operator set '{domain}', whose version the file does not declare"
            )));
        }
        let is_call =
            |function: &FunctionName| canonical(&function.domain) == domain && function.name == node.op_type;
        if functions.iter().any(is_call) {
            let node = label(at, node);
            findings.push(Finding::remark(format!(
                "{node} calls a function of the file: some engines require it inlined"
            )));
        }
    }
    findings
}

fn declarations(graph: &GraphProto) -> Vec<Finding> {
    let values = graph.input.iter().chain(&graph.output).map(Value::from_proto);
    let undeclared = values.filter(|value| value.shape.is_none());
    undeclared.map(|value| Finding::remark(format!("the rank of '{}' is not declared", value.name))).collect()
}

fn unused(graph: &GraphProto, external: &External) -> Vec<Finding> {
    let mut used: BTreeSet<&str> = graph.node.iter().flat_map(reads).collect();
    used.extend(graph.output.iter().map(|output| output.name.as_str()));
    let constants = graph.initializer.iter().filter(|tensor| !used.contains(tensor.name.as_str()));
    let constants = constants.map(|tensor| {
        let bytes = Tensor::from_proto(tensor, external).map_or(0, |tensor| tensor.data().len());
        Finding::remark(format!("initialiser '{}' ({bytes} bytes) is never used", tensor.name))
    });
    let constants = constants.collect::<Vec<_>>();
    let stored: BTreeSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let inputs = inputs.filter(|input| !used.contains(input) && !stored.contains(input));
    let inputs = inputs.map(|input| Finding::remark(format!("input '{input}' is never used")));
    inputs.chain(constants).collect()
}

/// Positions of the nodes that depend on each other in a cycle, the first in the file first; empty if there is none.
/// A blocked node is in a cycle or depends on one: following its inputs backwards leads into the cycle.
/// Each step reads one entry, because a file may have a million blocked nodes.
fn cycle(graph: &GraphProto) -> Vec<usize> {
    let Order { waits, readers, .. } = Order::of(&graph.node);
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
