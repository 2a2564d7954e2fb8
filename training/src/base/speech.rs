//! A network for spoken words as pictures of their spectra (bands or coefficients by time, either way round): three
//! convolutions, an average over positions, one layer. 56,554 weights for ten words.

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Pool, Value};

use super::Shape;
use crate::Error;

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let name = "speech";
    let [channels, ..] = shape.image(name, 4, "pictures of [1, 4 or more, 4 or more]")?;
    let mut net = Builder::new(name, shape.seed);
    let mut value = net.input(Value::batch_of_f32("input", &shape.dims));
    for (layer, inputs, outputs) in [("conv1", channels, 32), ("conv2", 32, 64), ("conv3", 64, 64)] {
        value = net.conv(layer, &value, Conv { bias: false, ..Conv::same(inputs, outputs, 3) })?;
        value = net.batch_norm(&format!("{layer}.norm"), &value, BatchNorm { channels: outputs })?;
        value = net.node("Relu", &format!("{layer}.relu"), &[&value]);
        if layer != "conv3" {
            value = net.max_pool(&format!("{layer}.pool"), &value, Pool { kernel: 2, stride: 2, padding: 0 });
        }
    }
    value = net.node("GlobalAveragePool", "average", &[&value]);
    value = net.node("Flatten", "flat", &[&value]);
    net.dense("output", &value, Dense { inputs: 64, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}
