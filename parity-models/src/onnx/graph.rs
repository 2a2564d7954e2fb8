//! The view of a model with resolved names, decoded constants and typed declarations.

use std::collections::BTreeMap;

use super::external::External;
use super::proto::ModelProto;
use super::{DataType, Defect, Node, Tensor, Value, domain};

/// The version of an operator set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opset {
    /// Empty for ONNX's own operators.
    pub domain: String,
    /// Version.
    pub version: i64,
}

/// A graph: nodes in the file's order, declared inputs and outputs. Its content may still be invalid: see
/// [`Model::inspect`](super::Model::inspect).
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// Operator sets of the nodes.
    pub opsets: Vec<Opset>,
    /// Inputs that a caller must supply (without those that only give an initialiser a default).
    pub inputs: Vec<Value>,
    /// Outputs.
    pub outputs: Vec<Value>,
    /// Nodes in the file's order: in a valid file every node follows those that it reads from.
    pub nodes: Vec<Node>,
    /// Constants of the graph that are not nodes, by name.
    pub initializers: BTreeMap<String, Tensor>,
    /// Declared intermediate values, by name. Their number depends on the exporter.
    pub values: BTreeMap<String, Value>,
}

impl Graph {
    pub(super) fn from_proto(model: &ModelProto, external: &External) -> Result<Self, Defect> {
        let graph = model.graph.as_ref().ok_or(Defect::NoGraph)?;
        let constant = |tensor| Ok((tensor, Tensor::from_proto(tensor, external)?));
        let initializers: BTreeMap<String, Tensor> = graph
            .initializer
            .iter()
            .map(constant)
            .map(|read| read.map(|(tensor, value)| (tensor.name.clone(), value)))
            .collect::<Result<_, Defect>>()?;
        let inputs = graph.input.iter().filter(|input| !initializers.contains_key(&input.name));
        let nodes = graph.node.iter().enumerate();
        let values = graph.value_info.iter().map(|info| (info.name.clone(), Value::from_proto(info)));
        let opsets = model
            .opset_import
            .iter()
            .map(|set| Opset { domain: domain::canonical(&set.domain).to_owned(), version: set.version });
        Ok(Self {
            name: graph.name.clone(),
            opsets: opsets.collect(),
            inputs: inputs.map(Value::from_proto).collect(),
            outputs: graph.output.iter().map(Value::from_proto).collect(),
            nodes: nodes.map(|(at, node)| Node::from_proto(at, node, external)).collect::<Result<_, _>>()?,
            values: values.collect(),
            initializers,
        })
    }

    /// Version of ONNX's own operator set; 1 if the file does not declare it, as the format specifies.
    pub fn opset(&self) -> i64 {
        self.opsets.iter().find(|set| set.domain.is_empty()).map_or(1, |set| set.version)
    }

    /// The node that produces `value`.
    pub fn producer(&self, value: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.outputs.iter().any(|output| output == value))
    }

    /// The nodes that read `value` (without bodies of `If`, `Loop` and `Scan`).
    pub fn consumers<'a>(&'a self, value: &'a str) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| node.inputs.iter().any(|input| input == value))
    }

    /// The constant `value`: an initialiser or the output of a `Constant` node.
    pub fn constant(&self, value: &str) -> Result<Option<Tensor>, Defect> {
        if let Some(tensor) = self.initializers.get(value) {
            return Ok(Some(tensor.clone()));
        }
        self.producer(value).map_or(Ok(None), Node::constant)
    }

    /// Number of trainable parameters: elements of all initialisers of floats.
    pub fn parameters(&self) -> usize {
        let floats = self.initializers.values().filter(|tensor| tensor.datatype().is_float());
        floats.map(Tensor::len).sum()
    }

    /// The declared element type of `value`.
    pub fn datatype(&self, value: &str) -> Option<DataType> {
        let declared = self.inputs.iter().chain(&self.outputs).find(|declared| declared.name == value);
        let declared = declared.or_else(|| self.values.get(value)).map(|declared| declared.datatype);
        declared.or_else(|| self.initializers.get(value).map(Tensor::datatype))
    }
}
