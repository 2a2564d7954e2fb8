//! The paper's multi-layer perceptron: 200 and 100 hidden units.

use parm_parity_models::onnx::{Builder, Dense, Model, Value};

use super::Shape;
use crate::Error;

pub(super) fn build(shape: &Shape) -> Result<Model, Error> {
    let inputs: usize = shape.dims.iter().product();
    if inputs == 0 {
        let wanted = "rows with values";
        return Err(Error::BaseInput { name: "mlp", dims: shape.dims.clone(), wanted });
    }
    let mut net = Builder::new("mlp", shape.seed);
    let mut value = net.input(Value::batch_of_f32("input", &shape.dims));
    if shape.dims.len() > 1 {
        value = net.node("Flatten", "flat", &[&value]);
    }
    let layers = [("fc1", inputs, 200), ("fc2", 200, 100)];
    for (name, inputs, outputs) in layers {
        value = net.dense(name, &value, Dense { inputs, outputs })?;
        value = net.node("Relu", &format!("{name}.relu"), &[&value]);
    }
    net.dense("output", &value, Dense { inputs: 100, outputs: shape.outputs })?;
    net.output(Value::batch_of_f32("output", &[shape.outputs]));
    Ok(net.build()?)
}
