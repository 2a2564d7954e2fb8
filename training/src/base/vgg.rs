//! VGG-11 with batch normalisation, for images and pictures of spectra.
//!
//! Halves the picture behind its first, second, fourth, sixth and eighth convolution while its size allows, and
//! averages over the rest, so that one layer reads 512 features. 9,228,362 weights for ten classes of three channels.

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Pool, Value};

use super::Shape;
use crate::Error;

/// Channels of the convolutions, and whether a pool follows.
const LAYERS: [(usize, bool); 8] = [
    (64, true),
    (128, true),
    (256, false),
    (256, true),
    (512, false),
    (512, true),
    (512, false),
    (512, true),
];

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let name = "vgg11";
    let [channels, height, width] = shape.image(name, 8, "images of [channels, 8 or more, 8 or more]")?;
    let mut net = Builder::new(name, shape.seed);
    let mut value = net.input(Value::batch_of_f32("input", &shape.dims));
    let (mut inputs, mut side) = (channels, height.min(width));
    for (at, (outputs, halve)) in LAYERS.into_iter().enumerate() {
        let layer = format!("conv{}", at + 1);
        value = net.conv(&layer, &value, Conv { bias: false, ..Conv::same(inputs, outputs, 3) })?;
        value = net.batch_norm(&format!("{layer}.norm"), &value, BatchNorm { channels: outputs })?;
        value = net.node("Relu", &format!("{layer}.relu"), &[&value]);
        if halve && side > 1 {
            let pool = Pool { kernel: 2, stride: 2, padding: 0 };
            value = net.max_pool(&format!("{layer}.pool"), &value, pool);
            side /= 2;
        }
        inputs = outputs;
    }
    value = net.node("GlobalAveragePool", "average", &[&value]);
    value = net.node("Flatten", "flat", &[&value]);
    net.dense("output", &value, Dense { inputs, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}
