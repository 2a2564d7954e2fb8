//! Sample graphs, built with the crate's own builder, and an engine to run graphs.

use std::io::Cursor;

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Pool, Tensor, Value};
use tract_onnx::prelude::{
    Framework, InferenceFact, InferenceModelExt, IntoRunnable, Tensor as Values, tvec,
};

pub(crate) const SEED: u64 = 17;

/// `Flatten -> Gemm -> Relu -> Gemm` on one-channel images.
pub(crate) fn mlp() -> Model {
    let (mut graph, input) = Builder::reading("mlp", SEED, Value::batch_of_f32("input", &[1, 6, 6]));
    let flat = graph.node("Flatten", "flatten", &[&input]);
    let hidden = graph.dense("fc1", &flat, Dense { inputs: 36, outputs: 12 }).unwrap();
    let hidden = graph.node("Relu", "relu", &[&hidden]);
    graph.dense("logits", &hidden, Dense { inputs: 12, outputs: 4 }).unwrap();
    graph.build_with(Value::batch_of_f32("logits", &[4])).unwrap()
}

/// LeNet-5's shape on small images, with a softmax at its end.
pub(crate) fn lenet() -> Model {
    let (mut graph, input) = Builder::reading("lenet", SEED, Value::batch_of_f32("input", &[1, 12, 12]));
    let pool = Pool { kernel: 2, stride: 2, padding: 0 };
    let x = graph.conv("conv1", &input, Conv::same(1, 4, 5)).unwrap();
    let x = graph.node("Relu", "relu1", &[&x]);
    let x = graph.max_pool("pool1", &x, pool);
    let x = graph.conv("conv2", &x, Conv { padding: 0, ..Conv::same(4, 8, 3) }).unwrap();
    let x = graph.node("Relu", "relu2", &[&x]);
    let x = graph.max_pool("pool2", &x, pool);
    let x = graph.node("Flatten", "flatten", &[&x]);
    let x = graph.dense("fc1", &x, Dense { inputs: 32, outputs: 16 }).unwrap();
    let x = graph.node("Relu", "relu3", &[&x]);
    let x = graph.dense("fc2", &x, Dense { inputs: 16, outputs: 5 }).unwrap();
    graph.node_with("Softmax", "probabilities", &[&x], [("axis", 1.into())]);
    graph.build_with(Value::batch_of_f32("probabilities", &[5])).unwrap()
}

/// One residual block between a convolution and a fully connected layer, on three-channel images.
pub(crate) fn resnet() -> Model {
    let (mut graph, input) = Builder::reading("resnet", SEED, Value::batch_of_f32("input", &[3, 8, 8]));
    let plain = |inputs, outputs| Conv { bias: false, ..Conv::same(inputs, outputs, 3) };
    let norm = BatchNorm { channels: 6 };
    let x = graph.conv("conv1", &input, plain(3, 6)).unwrap();
    let x = graph.batch_norm("bn1", &x, norm).unwrap();
    let skip = graph.node("Relu", "relu1", &[&x]);
    let x = graph.conv("conv2", &skip, plain(6, 6)).unwrap();
    let x = graph.batch_norm("bn2", &x, norm).unwrap();
    let x = graph.node("Add", "add", &[&x, &skip]);
    let x = graph.node("Relu", "relu2", &[&x]);
    let x = graph.node("GlobalAveragePool", "pool", &[&x]);
    let x = graph.node("Flatten", "flatten", &[&x]);
    graph.dense("logits", &x, Dense { inputs: 6, outputs: 10 }).unwrap();
    graph.build_with(Value::batch_of_f32("logits", &[10])).unwrap()
}

/// Operators before and after the layers that are copied for each slot: normalisation and a transpose of channels-last
/// images, sizes computed from the input, a pool and a bias after the last layer.
pub(crate) fn channels_last() -> Model {
    let (mut graph, input) =
        Builder::reading("channels_last", SEED, Value::batch_of_f32("input", &[6, 6, 3]));
    let mean = graph.constant(Tensor::from_f32("mean", &[3], &[0.1, 0.2, 0.3]).unwrap());
    let deviation = graph.constant(Tensor::from_f32("deviation", &[3], &[0.5, 0.6, 0.7]).unwrap());
    let x = graph.node("Sub", "centred", &[&input, &mean]);
    let x = graph.node("Div", "normal", &[&x, &deviation]);
    let x = graph.node_with("Transpose", "channels_first", &[&x], [("perm", vec![0i64, 3, 1, 2].into())]);
    let x = graph.conv("conv", &x, Conv::same(3, 4, 3)).unwrap();
    let x = graph.node("Relu", "relu", &[&x]);
    let x = graph.conv("classes", &x, Conv::same(4, 5, 1)).unwrap();
    let x = graph.node("GlobalAveragePool", "pool", &[&x]);
    let shape = graph.node("Shape", "shape", &[&input]);
    let first = graph.constant(Tensor::from_i64("first", &[1], &[0]).unwrap());
    let batch = graph.node("Gather", "batch", &[&shape, &first]);
    let rest = graph.constant(Tensor::from_i64("rest", &[1], &[-1]).unwrap());
    let flat = graph.node_with("Concat", "flat_shape", &[&batch, &rest], [("axis", 0.into())]);
    let x = graph.node("Reshape", "flat", &[&x, &flat]);
    let offset = graph.constant(Tensor::from_f32("offset", &[5], &[0.1, 0.2, 0.3, 0.4, 0.5]).unwrap());
    let x = graph.node("Add", "logits", &[&x, &offset]);
    graph.node_with("Softmax", "probabilities", &[&x], [("axis", 1.into())]);
    graph.build_with(Value::batch_of_f32("probabilities", &[5])).unwrap()
}

/// Two first layers read the input in parallel, and two last layers are joined after the last one.
pub(crate) fn two_branches() -> Model {
    let (mut graph, input) = Builder::reading("two_branches", SEED, Value::batch_of_f32("input", &[2, 6, 6]));
    let narrow = graph.conv("narrow", &input, Conv::same(2, 3, 1)).unwrap();
    let broad = graph.conv("broad", &input, Conv::same(2, 3, 5)).unwrap();
    let x = graph.node_with("Concat", "joined", &[&narrow, &broad], [("axis", 1.into())]);
    let x = graph.node("Relu", "relu", &[&x]);
    let x = graph.node("GlobalAveragePool", "pool", &[&x]);
    let x = graph.node("Flatten", "flatten", &[&x]);
    let left = graph.dense("left", &x, Dense { inputs: 6, outputs: 4 }).unwrap();
    let right = graph.dense("right", &x, Dense { inputs: 6, outputs: 4 }).unwrap();
    let gate = graph.node("Sigmoid", "gate", &[&right]);
    let x = graph.node("Mul", "gated", &[&left, &gate]);
    let offset = graph.constant(Tensor::from_f32("offset", &[4], &[0.1, 0.2, 0.3, 0.4]).unwrap());
    graph.node("Add", "y", &[&x, &offset]);
    graph.build_with(Value::batch_of_f32("y", &[4])).unwrap()
}

/// A graph with a node of every kind that has a rule, and few weights.
pub(crate) fn tiny() -> Model {
    let (mut graph, input) = Builder::reading("tiny", SEED, Value::batch_of_f32("x", &[2, 1]));
    let half = graph.constant(Tensor::from_f32("half", &[2, 1], &[0.5, 0.25]).unwrap());
    let x = graph.node("Mul", "m", &[&input, &half]);
    let x = graph.node_with("Transpose", "t", &[&x], [("perm", vec![0i64, 2, 1].into())]);
    let weight = graph.constant(Tensor::from_f32("w", &[2, 1], &[1.0, 2.0]).unwrap());
    let x = graph.node("MatMul", "p", &[&x, &weight]);
    let x = graph.node("Flatten", "f", &[&x]);
    let x = graph.dense("d", &x, Dense { inputs: 1, outputs: 2 }).unwrap();
    let size = graph.node("Shape", "s", &[&input]);
    let start = graph.constant(Tensor::from_i64("zero", &[1], &[0]).unwrap());
    let size = graph.node("Gather", "g", &[&size, &start]);
    let two = graph.constant(Tensor::from_i64("two", &[1], &[2]).unwrap());
    let size = graph.node_with("Concat", "c", &[&size, &two], [("axis", 0.into())]);
    let x = graph.node("Reshape", "r", &[&x, &size]);
    graph.node_with("Softmax", "y", &[&x], [("axis", 1.into())]);
    graph.build_with(Value::batch_of_f32("y", &[2])).unwrap()
}

/// The output of each row for a batch of rows of floats.
pub(crate) fn rows(model: &Model, rows: usize, row: &[usize], values: &[f32]) -> Vec<Vec<f32>> {
    let shape: Vec<usize> = std::iter::once(rows).chain(row.iter().copied()).collect();
    let output = run(model, Values::from_shape(&shape, values).unwrap());
    output.chunks(output.len() / rows).map(<[f32]>::to_vec).collect()
}

/// The output for one row of tokens.
pub(crate) fn tokens(model: &Model, values: &[i64]) -> Vec<f32> {
    run(model, Values::from_shape(&[1, values.len()], values).unwrap())
}

fn run(model: &Model, input: Values) -> Vec<f32> {
    let fact = InferenceFact::dt_shape(input.datum_type(), input.shape());
    let graph = tract_onnx::onnx().model_for_read(&mut Cursor::new(model.bytes())).unwrap();
    let plan = graph.with_input_fact(0, fact).unwrap().into_optimized().unwrap().into_runnable().unwrap();
    let output = plan.run(tvec!(input.into())).unwrap();
    output[0].to_plain_array_view::<f32>().unwrap().iter().copied().collect()
}
