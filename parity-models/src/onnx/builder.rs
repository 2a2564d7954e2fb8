//! Builds a graph node by node: the base models of the trainer, and the graphs of tests.
//!
//! A value is a `String`, its name in the graph. The only output of a node has the node's name. Initial weights follow the
//! rule of the paper's framework: weights and biases uniform within 1/sqrt(fan-in); batch normalisation starts as the
//! identity. Weights are named `NAME.weight` and so on.

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

    /// A graph with one input, and the input's name.
    pub fn reading(name: &str, seed: u64, input: Value) -> (Self, String) {
        let mut builder = Self::new(name, seed);
        let input = builder.input(input);
        (builder, input)
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
        self.graph.node.push(NodeProto::new(op, name, inputs, name, attributes));
        name.into()
    }

    /// Random numbers for the weight `name`.
    pub fn random(&self, name: &str) -> Random {
        Random::named(self.seed, name)
    }

    /// The finished file, with a last output.
    pub fn build_with(mut self, output: Value) -> Result<Model, Defect> {
        self.output(output);
        self.build()
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

/// A fully connected layer on rows of features (`Gemm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Input features.
    pub inputs: usize,
    /// Output features.
    pub outputs: usize,
}

/// A two-dimensional convolution with square windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Size of the window.
    pub kernel: usize,
    /// Stride.
    pub stride: usize,
    /// Padding with zeros at each border.
    pub padding: usize,
    /// Groups of channels; 1 for an ordinary convolution, `inputs` for a depthwise one.
    pub groups: usize,
    /// Whether to add a bias: not before batch normalisation.
    pub bias: bool,
}

impl Conv {
    /// An ordinary convolution with a bias that keeps the image size (for odd windows).
    pub fn same(inputs: usize, outputs: usize, kernel: usize) -> Self {
        Self { inputs, outputs, kernel, stride: 1, padding: kernel / 2, groups: 1, bias: true }
    }
}

/// Batch normalisation of some channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNorm {
    /// Channels.
    pub channels: usize,
}

/// A pool with square windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of the window.
    pub kernel: usize,
    /// Stride.
    pub stride: usize,
    /// Padding.
    pub padding: usize,
}

impl Builder {
    /// Adds a fully connected layer.
    pub fn dense(&mut self, name: &str, input: &str, layer: Dense) -> Result<String, Defect> {
        let weight = self.uniform(&format!("{name}.weight"), &[layer.outputs, layer.inputs], layer.inputs)?;
        let bias = self.uniform(&format!("{name}.bias"), &[layer.outputs], layer.inputs)?;
        Ok(self.node_with("Gemm", name, &[input, &weight, &bias], [("transB", 1.into())]))
    }

    /// Adds a convolution.
    pub fn conv(&mut self, name: &str, input: &str, layer: Conv) -> Result<String, Defect> {
        let Conv { kernel, stride, padding, groups, .. } = layer;
        let fan_in = layer.inputs / groups * kernel * kernel;
        let dims = [layer.outputs, layer.inputs / groups, kernel, kernel];
        let mut inputs = vec![input.to_owned(), self.uniform(&format!("{name}.weight"), &dims, fan_in)?];
        if layer.bias {
            inputs.push(self.uniform(&format!("{name}.bias"), &dims[..1], fan_in)?);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let attributes = [
            ("kernel_shape", vec![kernel as i64; 2].into()),
            ("strides", vec![stride as i64; 2].into()),
            ("pads", vec![padding as i64; 4].into()),
            ("group", (groups as i64).into()),
        ];
        Ok(self.node_with("Conv", name, &inputs, attributes))
    }

    /// Adds a batch normalisation over axis 1.
    pub fn batch_norm(&mut self, name: &str, input: &str, layer: BatchNorm) -> Result<String, Defect> {
        let mut filled = |part: &str, value: f32| {
            let values = vec![value; layer.channels];
            Tensor::from_f32(&format!("{name}.{part}"), &[layer.channels], &values).map(|t| self.constant(t))
        };
        let (weight, bias) = (filled("weight", 1.0)?, filled("bias", 0.0)?);
        let (mean, variance) = (filled("running_mean", 0.0)?, filled("running_var", 1.0)?);
        Ok(self.node("BatchNormalization", name, &[input, &weight, &bias, &mean, &variance]))
    }

    /// Adds a maximum pool.
    pub fn max_pool(&mut self, name: &str, input: &str, pool: Pool) -> String {
        let attributes = [
            ("kernel_shape", vec![pool.kernel as i64; 2].into()),
            ("strides", vec![pool.stride as i64; 2].into()),
            ("pads", vec![pool.padding as i64; 4].into()),
        ];
        self.node_with("MaxPool", name, &[input], attributes)
    }

    fn uniform(&mut self, name: &str, dims: &[usize], fan_in: usize) -> Result<String, Defect> {
        let bound = (fan_in.max(1) as f32).sqrt().recip();
        let count = dims.iter().fold(1_u64, |count, &size| count.saturating_mul(size as u64));
        let (actual, limit) = (count.saturating_mul(4), Limits::default().model_bytes);
        if actual > limit {
            return Err(Defect::TooLarge { what: format!("weight {name}"), actual, limit });
        }
        let values = self.random(name).uniforms(bound, dims.iter().product());
        Ok(self.constant(Tensor::from_f32(name, dims, &values)?))
    }
}
