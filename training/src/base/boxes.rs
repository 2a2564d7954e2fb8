//! A regressor of boxes in images: four convolutions that halve the image, and two layers on all positions. 126,548
//! weights for one box in a colour image of 64 x 64.

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Value};

use super::Shape;
use crate::Error;

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let name = "boxes";
    let [channels, height, width] = shape.image(name, 16, "images of [channels, 16 or more, 16 or more]")?;
    let mut net = Builder::new(name, shape.seed);
    let mut value = net.input(Value::batch_of_f32("input", &shape.dims));
    let mut inputs = channels;
    for (layer, outputs) in [("conv1", 16), ("conv2", 32), ("conv3", 64), ("conv4", 64)] {
        value = net.conv(layer, &value, Conv { stride: 2, bias: false, ..Conv::same(inputs, outputs, 3) })?;
        value = net.batch_norm(&format!("{layer}.norm"), &value, BatchNorm { channels: outputs })?;
        value = net.node("Relu", &format!("{layer}.relu"), &[&value]);
        inputs = outputs;
    }
    value = net.node("Flatten", "flat", &[&value]);
    let left = |side: usize| (0..4).fold(side, |side, _| side.div_ceil(2));
    let features = inputs * left(height) * left(width);
    value = net.dense("fc1", &value, Dense { inputs: features, outputs: 64 })?;
    value = net.node("Relu", "fc1.relu", &[&value]);
    net.dense("output", &value, Dense { inputs: 64, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}
