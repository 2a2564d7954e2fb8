//! Writing a graph from nothing, node after node: the base models of the trainer, and the graphs of tests.
//!
//! A value is a `String`, its name in the graph; a node's only output is called as the node. Layers with weights are
//! in [`layer`](super::layer).

use prost::Message;

use super::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use super::{Attribute, Dim, Error, Limits, Model, Tensor, Value};
use parm_random::Random;

/// The operator set that graphs are written in: new enough for LayerNormalization, old enough for every engine.
const OPSET: i64 = 17;
/// The file format version that goes with it.
const IR_VERSION: i64 = 8;

/// A graph that is being written.
#[derive(Debug)]
pub struct Builder {
    graph: GraphProto,
    opset: i64,
    seed: u64,
}

impl Builder {
    /// An empty graph; `seed` decides the initial weights of its layers.
    pub fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto { name: name.into(), ..GraphProto::default() };
        Self { graph, opset: OPSET, seed }
    }

    /// Declares another version of ONNX's operators. The nodes must be written accordingly.
    pub fn opset(mut self, version: i64) -> Self {
        self.opset = version;
        self
    }

    /// An input.
    pub fn input(&mut self, value: Value) -> String {
        self.graph.input.push(value.to_proto());
        value.name
    }

    /// An output, which a node must have made.
    pub fn output(&mut self, value: Value) {
        self.graph.output.push(value.to_proto());
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> String {
        let name = tensor.name().to_owned();
        self.graph.initializer.push(tensor.to_proto());
        name
    }

    /// A node with one output, which is called as the node.
    pub fn node(&mut self, op: &str, name: &str, inputs: &[&str]) -> String {
        self.node_with(op, name, inputs, [])
    }

    /// A node with settings and one output, which is called as the node.
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

    /// Random numbers for the weight called `name`.
    pub fn random(&self, name: &str) -> Random {
        Random::named(self.seed, name)
    }

    /// The finished file.
    pub fn build(self) -> Result<Model, Error> {
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
