//! LeNet-5 for images of 28 x 28 with today's usual ReLU and maximum pooling. 61,706 weights for ten classes of grey
//! images.

use parm_parity_models::onnx::{Builder, Conv, Dense, Model, Pool, Value};

use super::Shape;
use crate::Error;

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let [channels, 28, 28] = shape.dims[..] else {
        let wanted = "images of [channels, 28, 28]";
        return Err(Error::BaseInput { name: "lenet", dims: shape.dims.clone(), wanted });
    };
    let mut net = Builder::new("lenet", shape.seed);
    let mut value = net.input(Value::batch_of_f32("input", &shape.dims));
    let halve = Pool { kernel: 2, stride: 2, padding: 0 };
    let filters = [("conv1", channels, 6, 2), ("conv2", 6, 16, 0)];
    for (name, inputs, outputs, padding) in filters {
        let layer = Conv { padding, ..Conv::same(inputs, outputs, 5) };
        value = net.conv(name, &value, layer)?;
        value = net.node("Relu", &format!("{name}.relu"), &[&value]);
        value = net.max_pool(&format!("{name}.pool"), &value, halve);
    }
    value = net.node("Flatten", "flat", &[&value]);
    for (name, inputs, outputs) in [("fc1", 400, 120), ("fc2", 120, 84)] {
        value = net.dense(name, &value, Dense { inputs, outputs })?;
        value = net.node("Relu", &format!("{name}.relu"), &[&value]);
    }
    net.dense("output", &value, Dense { inputs: 84, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}
