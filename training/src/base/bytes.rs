//! A network for files as rows of bytes: the first and the last bytes of each file.
//!
//! Tokens are 0 to 255, and 256 where the file has no byte. The layers are an embedding, two convolutions, a maximum
//! over positions and two layers; 89,566 weights for 214 kinds of files. The embedding also covers sums of four
//! tokens, since a sum code sends such rows to its parity model.

use parm_parity_models::onnx::{Attribute, BatchNorm, Builder, DataType, Dense, Model, Tensor, Value};

use super::Shape;
use crate::Error;

/// Sums of up to four tokens, and 0.
const TOKENS: usize = 4 * 256 + 1;
/// Size of the embedding.
const FEATURES: usize = 8;
/// Channels behind the second convolution.
const WIDTH: usize = 128;

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let name = "bytes";
    if !matches!(shape.dims[..], [length] if length >= 64) {
        let wanted = "rows of 64 bytes or more";
        return Err(Error::BaseInput { name, dims: shape.dims.clone(), wanted });
    }
    let mut net = Builder::new(name, shape.seed);
    let input = Value { datatype: DataType::Int32, ..Value::batch_of_f32("input", &shape.dims) };
    let input = net.input(input);
    let values = net.random("embedding.weight").normals(TOKENS * FEATURES);
    let table = net.constant(Tensor::from_f32("embedding.weight", &[TOKENS, FEATURES], &values)?);
    let value = net.node("Gather", "embedding", &[&table, &input]);
    let order: Attribute = vec![0i64, 2, 1].into();
    let mut value = net.node_with("Transpose", "channels", &[&value], [("perm", order)]);
    let layers = [
        ConvLayer { name: "conv1", inputs: FEATURES, outputs: 64, kernel: 8 },
        ConvLayer { name: "conv2", inputs: 64, outputs: WIDTH, kernel: 4 },
    ];
    for layer in layers {
        value = layer.add(&mut net, &value)?;
    }
    value = net.node("GlobalMaxPool", "largest", &[&value]);
    value = net.node("Flatten", "flat", &[&value]);
    value = net.dense("fc1", &value, Dense { inputs: WIDTH, outputs: 128 })?;
    value = net.node("Relu", "fc1.relu", &[&value]);
    net.dense("output", &value, Dense { inputs: 128, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}

/// A convolution along the row with stride four, batch normalisation, ReLU.
struct ConvLayer {
    name: &'static str,
    inputs: usize,
    outputs: usize,
    kernel: usize,
}

impl ConvLayer {
    fn add(&self, net: &mut Builder, input: &str) -> Result<String, Error> {
        let &Self { name, inputs, outputs, kernel } = self;
        let weight = format!("{name}.weight");
        let bound = ((inputs * kernel) as f32).sqrt().recip();
        let values = net.random(&weight).uniforms(bound, outputs * inputs * kernel);
        let weight = net.constant(Tensor::from_f32(&weight, &[outputs, inputs, kernel], &values)?);
        let attributes = [("kernel_shape", vec![kernel as i64].into()), ("strides", vec![4i64].into())];
        let value = net.node_with("Conv", name, &[input, &weight], attributes);
        let value = net.batch_norm(&format!("{name}.norm"), &value, BatchNorm { channels: outputs })?;
        Ok(net.node("Relu", &format!("{name}.relu"), &[&value]))
    }
}
