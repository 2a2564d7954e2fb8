//! The report of a model, as text and, serialised, for scripts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::check::{Finding, check};
use super::{Model, Tensor, Value, domain};

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
        !self.findings.iter().any(Finding::is_fatal)
    }
}

impl Model {
    /// Describes and checks the model. Unreadable constants are findings, not errors.
    pub fn inspect(&self) -> Inspection {
        let proto = self.proto();
        let graph = proto.graph.clone().unwrap_or_default();
        let named = |name: &str| domain::full(domain::canonical(name)).to_owned();
        let is_constant = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
        let mut operators = BTreeMap::new();
        for node in &graph.node {
            let name = match domain::canonical(&node.domain) {
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
            writeln!(f, "{}     {finding}", if finding.is_fatal() { "error  " } else { "note   " })?;
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
