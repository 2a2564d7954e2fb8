//! Students are the deployed network with fewer features in every layer.

use parm_parity_models::onnx::rewrite::{End, Student, Weights, student};
use parm_parity_models::onnx::{BatchNorm, Builder, Conv, Defect, Dense, Model, Tensor, Value};
use parm_random::Random;

use crate::{run, sample};

fn thin(deployed: &Model, width: f32) -> Result<Model, Defect> {
    student(deployed, &Student { width, end: End::AsDeployed, start: Weights::Deployed })
}

fn sizes(model: &Model) -> Vec<usize> {
    let inputs = model.graph().unwrap().inputs;
    inputs[0].shape.iter().flatten().skip(1).map(|dim| dim.fixed().unwrap()).collect()
}

/// A block of separable convolutions with a gate, as in mobile networks, and a normalisation of flat features.
fn mobile() -> Model {
    let mut graph = Builder::new("mobile", sample::SEED);
    let input = graph.input(Value::batch_of_f32("input", &[3, 8, 8]));
    let x = graph.conv("conv1", &input, Conv { stride: 2, bias: false, ..Conv::same(3, 8, 3) }).unwrap();
    let x = graph.batch_norm("bn1", &x, BatchNorm { channels: 8 }).unwrap();
    let skip = graph.node("HardSwish", "swish1", &[&x]);
    let x = graph.conv("depthwise", &skip, Conv { groups: 8, ..Conv::same(8, 8, 3) }).unwrap();
    let gate = graph.node("GlobalAveragePool", "seen", &[&x]);
    let gate = graph.conv("gate1", &gate, Conv::same(8, 4, 1)).unwrap();
    let gate = graph.node("Relu", "gate.relu", &[&gate]);
    let gate = graph.conv("gate2", &gate, Conv::same(4, 8, 1)).unwrap();
    let gate = graph.node("HardSigmoid", "gate", &[&gate]);
    let x = graph.node("Mul", "gated", &[&x, &gate]);
    let x = graph.conv("pointwise", &x, Conv::same(8, 8, 1)).unwrap();
    let x = graph.node("Add", "joined", &[&x, &skip]);
    let offsets = graph.random("offsets").uniforms(1.0, 8);
    let offsets = graph.constant(Tensor::from_f32("offsets", &[8, 1, 1], &offsets).unwrap());
    let x = graph.node("Add", "offset", &[&x, &offsets]);
    let stated = graph.constant(Tensor::from_i64("stated", &[2], &[-1, 128]).unwrap());
    let x = graph.node("Reshape", "flat", &[&x, &stated]);
    let x = graph.batch_norm("bn2", &x, BatchNorm { channels: 128 }).unwrap();
    graph.dense("logits", &x, Dense { inputs: 128, outputs: 5 }).unwrap();
    graph.output(Value::batch_of_f32("logits", &[5]));
    graph.build().unwrap()
}

/// Rows times a matrix plus a bias, as some exporters write a layer.
fn products() -> Model {
    let mut graph = Builder::new("products", sample::SEED);
    let mut x = graph.input(Value::batch_of_f32("input", &[6]));
    for (name, inputs, outputs) in [("a", 6, 8), ("b", 8, 4)] {
        let weights = graph.random(name).uniforms(1.0, inputs * outputs);
        let weight = graph.constant(Tensor::from_f32(name, &[inputs, outputs], &weights).unwrap());
        let bias = Tensor::from_f32(&format!("{name}.bias"), &[outputs], &vec![0.1; outputs]).unwrap();
        let bias = graph.constant(bias);
        x = graph.node("MatMul", &format!("{name}.product"), &[&x, &weight]);
        x = graph.node("Add", &format!("{name}.sum"), &[&bias, &x]);
    }
    graph.output(Value::batch_of_f32("b.sum", &[4]));
    graph.build().unwrap()
}

fn all() -> [Model; 5] {
    [sample::mlp(), sample::lenet(), sample::resnet(), mobile(), products()]
}

/// Runs some rows together and one by one, and returns both outputs.
fn answers(model: &Model, rows: usize, values: &[f32]) -> Vec<f32> {
    run::rows(model, rows, &sizes(model), values).concat()
}

#[test]
fn student_of_full_width_equals_the_deployed_network() {
    for deployed in all() {
        let derived = thin(&deployed, 1.0).unwrap();
        assert_eq!(derived.inspect().findings, []);
        let queries = Random::new(2).uniforms(1.0, 3 * sizes(&deployed).iter().product::<usize>());
        assert_eq!(answers(&derived, 3, &queries), answers(&deployed, 3, &queries));
    }
}

#[test]
fn thin_student_has_the_deployed_inputs_and_outputs() {
    for deployed in all() {
        let derived = thin(&deployed, 0.5).unwrap();
        assert_eq!(derived.inspect().findings, []);
        let (own, graph) = (deployed.graph().unwrap(), derived.graph().unwrap());
        assert_eq!((&own.inputs, &own.outputs), (&graph.inputs, &graph.outputs));
        let weights = |graph: &parm_parity_models::onnx::Graph| {
            graph.initializers.values().map(Tensor::len).sum::<usize>()
        };
        assert!(weights(&graph) < weights(&own));
        let row = sizes(&derived).iter().product::<usize>();
        let queries = Random::new(3).uniforms(1.0, 2 * row);
        let both = answers(&derived, 2, &queries);
        let (first, second) = both.split_at(both.len() / 2);
        assert_ne!(first, second);
        for (together, alone) in first.iter().zip(answers(&derived, 1, &queries[..row])) {
            assert!((together - alone).abs() < 1e-5, "{together} is not {alone}");
        }
    }
}

#[test]
fn constants_of_features_are_cut_with_them() {
    let graph = thin(&sample::lenet(), 0.5).unwrap().graph().unwrap();
    let dims = |name: &str| graph.initializers[name].dims().to_vec();
    assert_eq!(dims("conv1.weight"), [2, 1, 5, 5]);
    assert_eq!(dims("conv2.weight"), [4, 2, 3, 3]);
    assert_eq!(dims("conv2.bias"), [4]);
    // Eight images of two by two values were flattened; four are left.
    assert_eq!(dims("fc1.weight"), [8, 16]);
    assert_eq!(dims("fc2.weight"), [5, 8]);
    assert_eq!(dims("fc2.bias"), [5]);
    assert_eq!(graph.inputs[0].protocol_shape(), Some(vec![-1, 1, 12, 12]));
    assert_eq!(graph.outputs[0].protocol_shape(), Some(vec![-1, 5]));
    let graph = thin(&mobile(), 0.5).unwrap().graph().unwrap();
    assert_eq!(graph.initializers["depthwise.weight"].dims(), [4, 1, 3, 3]);
    assert_eq!(graph.initializers["offsets"].dims(), [4, 1, 1]);
    assert_eq!(graph.initializers["bn2.weight"].dims(), [64]);
}

#[test]
fn channel_counts_are_multiples_that_engines_convolve() {
    let mut graph = Builder::new("wide", sample::SEED);
    let x = graph.input(Value::batch_of_f32("x", &[1, 4, 4]));
    let x = graph.conv("conv1", &x, Conv::same(1, 64, 3)).unwrap();
    let x = graph.conv("conv2", &x, Conv::same(64, 20, 3)).unwrap();
    let x = graph.node("Flatten", "flat", &[&x]);
    let x = graph.dense("fc1", &x, Dense { inputs: 320, outputs: 64 }).unwrap();
    graph.dense("y", &x, Dense { inputs: 64, outputs: 3 }).unwrap();
    graph.output(Value::batch_of_f32("y", &[3]));
    let graph = thin(&graph.build().unwrap(), 0.7).unwrap().graph().unwrap();
    let dims = |name: &str| graph.initializers[name].dims().to_vec();
    // The multiple nearest to 44.8 channels is 48; small or flat layers are not rounded.
    assert_eq!(dims("conv1.weight"), [48, 1, 3, 3]);
    assert_eq!(dims("conv2.weight"), [14, 48, 3, 3]);
    assert_eq!(dims("fc1.weight"), [45, 224]);
}

#[test]
fn error_of_thinning_names_the_node() {
    let mut graph = Builder::new("concatenation", sample::SEED);
    let x = graph.input(Value::batch_of_f32("x", &[4]));
    let [a, b] = ["a", "b"].map(|name| graph.dense(name, &x, Dense { inputs: 4, outputs: 4 }).unwrap());
    let both = graph.node_with("Concat", "both", &[&a, &b], [("axis", 1.into())]);
    graph.dense("y", &both, Dense { inputs: 8, outputs: 3 }).unwrap();
    graph.output(Value::batch_of_f32("y", &[3]));
    let error = thin(&graph.build().unwrap(), 0.5).unwrap_err().to_string();
    assert!(error.contains("Concat 'both' does not keep the features"), "{error}");
}

#[test]
fn numbers_along_an_image_are_not_its_features() {
    let model = |dims: &[usize]| {
        let mut graph = Builder::new("offset", sample::SEED);
        let x = graph.input(Value::batch_of_f32("x", &[1, 4, 4]));
        let x = graph.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
        let numbers = graph.constant(Tensor::from_f32("numbers", dims, &[0.1, 0.2, 0.3, 0.4]).unwrap());
        let x = graph.node("PRelu", "slopes", &[&x, &numbers]);
        let x = graph.node("Flatten", "flat", &[&x]);
        graph.dense("y", &x, Dense { inputs: 64, outputs: 3 }).unwrap();
        graph.output(Value::batch_of_f32("y", &[3]));
        graph.build().unwrap()
    };
    let graph = thin(&model(&[4, 1, 1]), 0.25).unwrap().graph().unwrap();
    assert_eq!(graph.initializers["numbers"].dims(), [1, 1, 1]);
    let error = thin(&model(&[4]), 0.25).unwrap_err().to_string();
    assert!(error.contains("PRelu 'slopes' does not keep the features"), "{error}");
}

#[test]
fn features_that_are_an_output_stay() {
    let mut graph = Builder::new("features", sample::SEED);
    let x = graph.input(Value::batch_of_f32("x", &[4]));
    let features = graph.dense("features", &x, Dense { inputs: 4, outputs: 4 }).unwrap();
    graph.dense("y", &features, Dense { inputs: 4, outputs: 3 }).unwrap();
    graph.output(Value::batch_of_f32("y", &[3]));
    graph.output(Value::batch_of_f32("features", &[4]));
    let model = graph.build().unwrap();
    let error = thin(&model, 0.5).unwrap_err().to_string();
    assert!(error.starts_with("output 'features' does not come from"), "{error}");
    assert_eq!(thin(&model, 1.0).unwrap().inspect().findings, []);
}
