//! Residual networks: ResNet-18 with the stem for small images, and a small one for laptops.
//!
//! The small one has widths 16, 32 and 64 with one block each; 77,754 weights for ten classes of grey images. Both
//! take images of any size from 8 x 8, since they average over the remaining positions.

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Value};

use super::Shape;
use crate::Error;

/// Channels and number of blocks of each stage.
struct ResidualNet {
    name: &'static str,
    widths: &'static [usize],
    blocks: usize,
}

pub(super) fn small(shape: &Shape) -> Result<Model, Error> {
    build(shape, &ResidualNet { name: "resnet-small", widths: &[16, 32, 64], blocks: 1 })
}

pub(super) fn eighteen(shape: &Shape) -> Result<Model, Error> {
    build(shape, &ResidualNet { name: "resnet18", widths: &[64, 128, 256, 512], blocks: 2 })
}

fn build(shape: &Shape, plan: &ResidualNet) -> Result<Model, Error> {
    let name = plan.name;
    let [channels, ..] = shape.image(name, 8, "images of [channels, 8 or more, 8 or more]")?;
    let mut net = Builder::new(name, shape.seed);
    let input = net.input(Value::batch_of_f32("input", &shape.dims));
    let mut width = plan.widths[0];
    let stem = Conv { bias: false, ..Conv::same(channels, width, 3) };
    let mut value = normed(&mut net, "stem", &input, stem)?;
    value = net.node("Relu", "stem.relu", &[&value]);
    for (stage, &outputs) in plan.widths.iter().enumerate() {
        for block in 0..plan.blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let place = Block { inputs: width, outputs, stride };
            value = residual(&mut net, &format!("stage{stage}.{block}"), &value, place)?;
            width = outputs;
        }
    }
    value = net.node("GlobalAveragePool", "average", &[&value]);
    value = net.node("Flatten", "flat", &[&value]);
    net.dense("output", &value, Dense { inputs: width, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}

/// The position and the sizes of a block.
#[derive(Clone, Copy)]
struct Block {
    inputs: usize,
    outputs: usize,
    stride: usize,
}

/// Two convolutions and a shortcut, which is a convolution if the size changes.
fn residual(net: &mut Builder, name: &str, input: &str, block: Block) -> Result<String, Error> {
    let Block { inputs, outputs, stride } = block;
    let first = Conv { stride, bias: false, ..Conv::same(inputs, outputs, 3) };
    let mut value = normed(net, &format!("{name}.a"), input, first)?;
    value = net.node("Relu", &format!("{name}.a.relu"), &[&value]);
    value =
        normed(net, &format!("{name}.b"), &value, Conv { bias: false, ..Conv::same(outputs, outputs, 3) })?;
    let around = match (inputs, stride) == (outputs, 1) {
        true => input.to_owned(),
        false => {
            let layer = Conv { stride, bias: false, ..Conv::same(inputs, outputs, 1) };
            normed(net, &format!("{name}.around"), input, layer)?
        }
    };
    value = net.node("Add", &format!("{name}.sum"), &[&value, &around]);
    Ok(net.node("Relu", &format!("{name}.relu"), &[&value]))
}

/// A convolution without bias, with batch normalisation behind it.
fn normed(net: &mut Builder, name: &str, input: &str, layer: Conv) -> Result<String, Error> {
    let value = net.conv(&format!("{name}.conv"), input, layer)?;
    Ok(net.batch_norm(&format!("{name}.norm"), &value, BatchNorm { channels: layer.outputs })?)
}
