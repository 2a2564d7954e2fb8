//! Graphs to try things on, written with the crate's own builder.

use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Dense, Model, Pool, Value};

pub(crate) const SEED: u64 = 17;

/// `Flatten -> Gemm -> Relu -> Gemm` on one-channel images.
pub(crate) fn mlp() -> Model {
    let mut graph = Builder::new("mlp", SEED);
    let input = graph.input(Value::batch_of_f32("input", &[1, 6, 6]));
    let flat = graph.node("Flatten", "flatten", &[&input]);
    let hidden = graph.dense("fc1", &flat, Dense { inputs: 36, outputs: 12 }).unwrap();
    let hidden = graph.node("Relu", "relu", &[&hidden]);
    graph.dense("logits", &hidden, Dense { inputs: 12, outputs: 4 }).unwrap();
    graph.output(Value::batch_of_f32("logits", &[4]));
    graph.build().unwrap()
}

/// LeNet-5's shape on small images, with a softmax at its end.
pub(crate) fn lenet() -> Model {
    let mut graph = Builder::new("lenet", SEED);
    let input = graph.input(Value::batch_of_f32("input", &[1, 12, 12]));
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
    graph.output(Value::batch_of_f32("probabilities", &[5]));
    graph.build().unwrap()
}

/// One residual block between a convolution and a fully connected layer, on three-channel images.
pub(crate) fn resnet() -> Model {
    let mut graph = Builder::new("resnet", SEED);
    let input = graph.input(Value::batch_of_f32("input", &[3, 8, 8]));
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
    graph.output(Value::batch_of_f32("logits", &[10]));
    graph.build().unwrap()
}
