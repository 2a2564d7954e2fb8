//! Runs graphs in an engine.

use std::io::Cursor;

use parm_parity_models::onnx::Model;
use tract_onnx::prelude::*;

/// The output of each row for a batch of rows of floats.
pub(crate) fn rows(model: &Model, rows: usize, row: &[usize], values: &[f32]) -> Vec<Vec<f32>> {
    let shape: Vec<usize> = std::iter::once(rows).chain(row.iter().copied()).collect();
    let output = run(model, Tensor::from_shape(&shape, values).unwrap());
    output.chunks(output.len() / rows).map(<[f32]>::to_vec).collect()
}

/// The output for one row of tokens.
pub(crate) fn tokens(model: &Model, values: &[i64]) -> Vec<f32> {
    run(model, Tensor::from_shape(&[1, values.len()], values).unwrap())
}

fn run(model: &Model, input: Tensor) -> Vec<f32> {
    let fact = InferenceFact::dt_shape(input.datum_type(), input.shape());
    let graph = tract_onnx::onnx().model_for_read(&mut Cursor::new(model.bytes())).unwrap();
    let plan = graph.with_input_fact(0, fact).unwrap().into_optimized().unwrap().into_runnable().unwrap();
    let output = plan.run(tvec!(input.into())).unwrap();
    output[0].to_plain_array_view::<f32>().unwrap().iter().copied().collect()
}
