//! Builds a graph node by node: the base models of the trainer, and the graphs of tests.
//!
//! A value is a `String`, its name in the graph. The only output of a node has the node's name. Layers with weights are
//! in [`layer`](super::layer).

use prost::Message;

use super::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use super::{Attribute, Defect, Dim, Limits, Model, Tensor, Value};
use parm_random::Random;

/// The operator set of the graphs: new enough for LayerNormalization, old enough for every engine.
const OPSET: i64 = 17;
/// The file format version of that operator set.
const IR_VERSION: i64 = 8;

/// A graph under construction.
#[derive(Debug)]
pub struct Builder {
    graph: GraphProto,
    opset: i64,
    seed: u64,
}

impl Builder {
    /// An empty graph; `seed` determines the initial weights of its layers.
    pub fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto { name: name.into(), ..GraphProto::default() };
        Self { graph, opset: OPSET, seed }
    }

    /// Declares another version of ONNX's operators; the nodes must follow it.
    pub fn opset(mut self, version: i64) -> Self {
        self.opset = version;
        self
    }

    /// Adds an input.
    pub fn input(&mut self, value: Value) -> String {
        self.graph.input.push(value.to_proto());
        value.name
    }

    /// Adds an output, which a node must already produce.
    pub fn output(&mut self, value: Value) {
        self.graph.output.push(value.to_proto());
    }

    /// Adds a constant.
    pub fn constant(&mut self, tensor: Tensor) -> String {
        let name = tensor.name().to_owned();
        self.graph.initializer.push(tensor.to_proto());
        name
    }

    /// Adds a node with one output, which has the node's name.
    pub fn node(&mut self, op: &str, name: &str, inputs: &[&str]) -> String {
        self.node_with(op, name, inputs, [])
    }

    /// Adds a node with attributes and one output, which has the node's name.
    pub fn node_with<const N: usize>(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[&str],
        attributes: [(&str, Attribute); N],
    ) -> String {
        self.graph.node.push(NodeProto {
            op_type: op.into(),
            name: name.into(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![name.into()],
            attribute: attributes.iter().map(|(key, value)| value.to_proto(key)).collect(),
            ..NodeProto::default()
        });
        name.into()
    }

    /// Random numbers for the weight `name`.
    pub fn random(&self, name: &str) -> Random {
        Random::named(self.seed, name)
    }

    /// The finished file.
    pub fn build(self) -> Result<Model, Defect> {
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "parm".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: self.opset }],
            graph: Some(self.graph),
            ..ModelProto::default()
        };
        Model::from_bytes(model.encode_to_vec(), &Limits::default())
    }
}

impl Value {
    /// A tensor of 32-bit floats whose first dimension is the batch and whose others are fixed.
    pub fn batch_of_f32(name: &str, row: &[usize]) -> Self {
        let dims = row.iter().map(|&dim| Dim::Fixed(dim));
        let shape = std::iter::once(Dim::Symbol("batch".into())).chain(dims).collect();
        Self { name: name.into(), datatype: super::DataType::Float, shape: Some(shape) }
    }
}
