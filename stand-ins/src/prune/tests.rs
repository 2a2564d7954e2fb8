//! Tests on networks with redundant channels: half of them can be removed without a loss.

use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Model, Tensor, Value};
use parm_random::Random;

use super::*;
use crate::testing::{Alone, Stage, operators};

/// A constant whose second half along `axis` repeats the first.
fn twice(builder: &mut Builder, name: &str, dims: &[usize], axis: usize) -> String {
    let values = Random::named(7, name).normals(dims.iter().product());
    let behind: usize = dims[axis + 1..].iter().product();
    let value = |at: usize| {
        let channel = at / behind % dims[axis];
        values[at - (channel - channel % (dims[axis] / 2)) * behind]
    };
    let values: Vec<f32> =
        (0..values.len()).map(|at| value(at) / (dims[dims.len() - 1] as f32).sqrt()).collect();
    builder.constant(Tensor::from_f32(name, dims, &values).unwrap())
}

fn constant(builder: &mut Builder, name: &str, dims: &[usize]) -> String {
    let values = Random::named(8, name).uniforms(0.3, dims.iter().product());
    builder.constant(Tensor::from_f32(name, dims, &values).unwrap())
}

fn rows(row: &[usize], count: usize) -> parm_protocol::Tensor {
    let shape: Vec<usize> = std::iter::once(count).chain(row.iter().copied()).collect();
    let values = Random::new(5).normals(shape.iter().product());
    parm_protocol::Tensor::from_f32(shape.as_slice(), &values).unwrap()
}

/// The relative error of a graph that was cut to half of its channels, and the cut graph.
fn halved(model: &Model, inputs: &[parm_protocol::Tensor]) -> (f32, Draft) {
    let stage = Stage::new();
    let rows = stage.rows(model, inputs);
    let pruning = Pruning::of(&stage.workshop, &Draft::new(model).unwrap(), &rows, &Alone).unwrap();
    assert!(pruning.reaches(Depth::Inside), "{}", pruning.refusal());
    let (draft, _) = pruning.cut(0.5, Depth::Inside).unwrap();
    (apart(&stage, model, &draft, &rows), draft)
}

fn apart(stage: &Stage, model: &Model, draft: &Draft, rows: &Rows) -> f32 {
    let before = stage.answers(model, rows);
    let after = stage.answers(&draft.clone().finish().unwrap(), rows);
    assert_eq!(before.len(), after.len());
    let apart: f32 = before.iter().zip(&after).map(|(a, b)| (a - b).powi(2)).sum();
    (apart / before.iter().map(|a| a.powi(2)).sum::<f32>()).sqrt()
}

/// The sizes of the first constant of the node that makes `value`.
fn weight<'a>(draft: &'a Draft, value: &str) -> &'a [usize] {
    let node = draft.nodes.iter().find(|node| node.output.iter().any(|made| made == value)).unwrap();
    let name = node.input.iter().find(|name| draft.constants.contains_key(*name)).unwrap();
    draft.constants[name].dims()
}

#[test]
fn filters_before_a_flattening_and_features_behind_are_cut() {
    let (mut builder, x) = Builder::reading("flat", 1, Value::batch_of_f32("x", &[2, 8, 8]));
    let w = twice(&mut builder, "w", &[32, 2, 3, 3], 0);
    let conv = builder.node("Conv", "conv", &[&x, &w]);
    let slope = twice(&mut builder, "slope", &[32, 1, 1], 0);
    let bent = builder.node("PRelu", "bent", &[&conv, &slope]);
    let pooled = builder.node_with(
        "MaxPool",
        "pooled",
        &[&bent],
        [("kernel_shape", vec![2, 2].into()), ("strides", vec![2, 2].into())],
    );
    let flat = builder.node("Flatten", "flat", &[&pooled]);
    let dense = twice(&mut builder, "dense", &[64, 288], 0);
    let hidden = builder.node_with("Gemm", "hidden", &[&flat, &dense], [("transB", 1.into())]);
    let tanh = builder.node("Tanh", "tanh", &[&hidden]);
    let last = constant(&mut builder, "last", &[64, 5]);
    builder.node("MatMul", "y", &[&tanh, &last]);
    builder.output(Value::batch_of_f32("y", &[5]));
    let (apart, draft) = halved(&builder.build().unwrap(), &[rows(&[2, 8, 8], 40)]);
    assert!(apart < 2e-2, "{apart}");
    assert_eq!((weight(&draft, "conv"), weight(&draft, "hidden")), (&[16, 2, 3, 3][..], &[32, 144][..]));
}

/// A feed-forward with a GELU of several nodes, behind a product of two values as in attention. Rows of any length.
fn transformer() -> Model {
    let mut builder = Builder::new("transformer", 1);
    let dims = |last| [Dim::Symbol("batch".into()), Dim::Symbol("length".into()), Dim::Fixed(last)].to_vec();
    let value = |name: &str| Value { name: name.into(), datatype: DataType::Float, shape: Some(dims(16)) };
    let x = builder.input(value("x"));
    let keys = constant(&mut builder, "k.weight", &[16, 16]);
    let keys = builder.node("MatMul", "k", &[&x, &keys]);
    let turned = builder.node_with("Transpose", "turned", &[&keys], [("perm", vec![0, 2, 1].into())]);
    let scores = builder.node("MatMul", "scores", &[&x, &turned]);
    let shares = builder.node_with("Softmax", "shares", &[&scores], [("axis", Attribute::Int(-1))]);
    let seen = builder.node("MatMul", "seen", &[&shares, &x]);
    let stream = builder.node("Add", "stream", &[&x, &seen]);
    let up = twice(&mut builder, "up", &[16, 64], 1);
    let bias = twice(&mut builder, "bias", &[64], 0);
    let hidden = builder.node("MatMul", "hidden", &[&stream, &up]);
    let biased = builder.node("Add", "biased", &[&bias, &hidden]);
    let root = builder.constant(Tensor::from_f32("root", &[], &[std::f32::consts::SQRT_2]).unwrap());
    let one = builder.constant(Tensor::from_f32("one", &[], &[1.0]).unwrap());
    let half = builder.constant(Tensor::from_f32("half", &[], &[0.5]).unwrap());
    let divided = builder.node("Div", "divided", &[&biased, &root]);
    let erf = builder.node("Erf", "erf", &[&divided]);
    let raised = builder.node("Add", "raised", &[&erf, &one]);
    let product = builder.node("Mul", "product", &[&biased, &raised]);
    let gelu = builder.node("Mul", "gelu", &[&product, &half]);
    let down = constant(&mut builder, "down", &[64, 16]);
    let back = builder.node("MatMul", "back", &[&gelu, &down]);
    let end = constant(&mut builder, "end", &[16]);
    let shifted = builder.node("Add", "shifted", &[&back, &end]);
    builder.node("Add", "y", &[&stream, &shifted]);
    builder.build_with(value("y")).unwrap()
}

#[test]
fn transformer_is_cut_only_in_its_feed_forward() {
    let (model, stage) = (transformer(), Stage::new());
    let fitted = stage.rows(&model, &[rows(&[12, 16], 24)]);
    let draft = Draft::new(&model).unwrap();
    let pruning = Pruning::of(&stage.workshop, &draft, &fitted, &Alone).unwrap();
    let (cut, how) = pruning.cut(0.5, Depth::Inside).unwrap();
    assert_eq!(how, "32 of 64 channels inside of 1 block");
    assert_eq!(operators(&cut), operators(&draft), "summands belong in the existing additions");
    assert_eq!((weight(&cut, "hidden"), weight(&cut, "k")), (&[16, 32][..], &[16, 16][..]));
    for length in [12, 7] {
        let rows = stage.rows(&model, &[rows(&[length, 16], 6)]);
        let apart = apart(&stage, &model, &cut, &rows);
        assert!(apart < 2e-2, "{apart} at length {length}");
    }
    assert!(pruning.refusal().contains("MatMul of two values"), "{}", pruning.refusal());
}

/// Features that are normalised by their mean and their mean square.
fn normalised() -> Model {
    let (mut builder, x) = Builder::reading("normalised", 1, Value::batch_of_f32("x", &[6]));
    let wide = twice(&mut builder, "wide", &[6, 48], 1);
    let features = builder.node("MatMul", "features", &[&x, &wide]);
    let relu = builder.node("Relu", "relu", &[&features]);
    let axes = builder.constant(Tensor::from_i64("axes", &[1], &[1]).unwrap());
    let sum = builder.node("ReduceSum", "sum", &[&relu, &axes]);
    let share = builder.constant(Tensor::from_f32("share", &[], &[1.0 / 48.0]).unwrap());
    let mean = builder.node("Mul", "mean", &[&sum, &share]);
    let centred = builder.node("Sub", "centred", &[&relu, &mean]);
    let squared = builder.node("Mul", "squared", &[&relu, &relu]);
    let power = builder.node_with("ReduceMean", "power", &[&squared], [("axes", vec![1].into())]);
    let little = builder.constant(Tensor::from_f32("little", &[], &[0.1]).unwrap());
    let positive = builder.node("Add", "positive", &[&power, &little]);
    let root = builder.node("Sqrt", "root", &[&positive]);
    let scale = twice(&mut builder, "scale", &[1, 48], 1);
    let factor = builder.node("Div", "factor", &[&scale, &root]);
    let scaled = builder.node("Mul", "scaled", &[&centred, &factor]);
    let last = constant(&mut builder, "last", &[48, 5]);
    builder.node("MatMul", "y", &[&scaled, &last]);
    builder.build_with(Value::batch_of_f32("y", &[5])).unwrap()
}

#[test]
fn mean_over_channels_is_compensated() {
    let (apart, draft) = halved(&normalised(), &[rows(&[6], 200)]);
    assert!(apart < 2e-2, "{apart}");
    assert_eq!(weight(&draft, "features"), [6, 24]);
}

#[test]
fn computed_reshape_target_gets_the_remaining_channels() {
    let (mut builder, x) = Builder::reading("computed", 1, Value::batch_of_f32("x", &[4, 6]));
    let wide = twice(&mut builder, "wide", &[6, 32], 1);
    let features = builder.node("MatMul", "features", &[&x, &wide]);
    let shape = builder.node("Shape", "shape", &[&x]);
    let first = builder.constant(Tensor::from_i64("first", &[1], &[0]).unwrap());
    let count = builder.node("Gather", "count", &[&shape, &first]);
    let rest = builder.constant(Tensor::from_i64("rest", &[3], &[2, 2, 32]).unwrap());
    let target = builder.node_with("Concat", "target", &[&count, &rest], [("axis", 0.into())]);
    let apart_ = builder.node("Reshape", "apart", &[&features, &target]);
    let relu = builder.node("Relu", "relu", &[&apart_]);
    let last = constant(&mut builder, "last", &[32, 5]);
    builder.node("MatMul", "y", &[&relu, &last]);
    builder.output(Value::batch_of_f32("y", &[2, 2, 5]));
    let (apart, draft) = halved(&builder.build().unwrap(), &[rows(&[4, 6], 40)]);
    assert!(apart < 2e-2, "{apart}");
    assert_eq!(weight(&draft, "features"), [6, 16]);
}

/// Two layers joined by a residual stream, and one inside.
fn residual() -> Model {
    let (mut builder, x) = Builder::reading("residual", 1, Value::batch_of_f32("x", &[6]));
    let stem = constant(&mut builder, "stem", &[6, 24]);
    let stream = builder.node("MatMul", "stream", &[&x, &stem]);
    let up = constant(&mut builder, "up", &[24, 64]);
    let hidden = builder.node("MatMul", "hidden", &[&stream, &up]);
    let relu = builder.node("Relu", "relu", &[&hidden]);
    let down = constant(&mut builder, "down", &[64, 24]);
    let back = builder.node("MatMul", "back", &[&relu, &down]);
    let sum = builder.node("Add", "sum", &[&stream, &back]);
    let last = constant(&mut builder, "last", &[24, 5]);
    builder.node("MatMul", "y", &[&sum, &last]);
    builder.build_with(Value::batch_of_f32("y", &[5])).unwrap()
}

/// Two convolutions whose sum a third one reads, as in short wide residual networks: the second reads what the first
/// adds, and the second half of the channels repeats the first.
fn short_residual() -> Model {
    let (mut builder, x) = Builder::reading("short", 1, Value::batch_of_f32("x", &[3, 6, 6]));
    let pads = |builder: &mut Builder, name: &str, (read, weight): (&str, &str)| {
        builder.node_with("Conv", name, &[read, weight], [("pads", vec![1, 1, 1, 1].into())])
    };
    let first = twice(&mut builder, "first.weight", &[32, 3, 3, 3], 0);
    let first = pads(&mut builder, "first", (&x, &first));
    let stream = builder.node("Relu", "stream", &[&first]);
    let second = twice(&mut builder, "second.weight", &[32, 32, 3, 3], 0);
    let second = pads(&mut builder, "second", (&stream, &second));
    let scale = twice(&mut builder, "scale", &[32], 0);
    let ones = builder.constant(Tensor::from_f32("ones", &[32], &[1.0; 32]).unwrap());
    let normal = builder.node("BatchNormalization", "normal", &[&second, &scale, &scale, &scale, &ones]);
    let added = builder.node("Relu", "added", &[&normal]);
    let sum = builder.node("Add", "sum", &[&stream, &added]);
    let pooled = builder.node("GlobalMaxPool", "pooled", &[&sum]);
    let flat = builder.node("Flatten", "flat", &[&pooled]);
    let last = constant(&mut builder, "last", &[32, 5]);
    builder.node("MatMul", "y", &[&flat, &last]);
    builder.build_with(Value::batch_of_f32("y", &[5])).unwrap()
}

#[test]
fn stream_is_cut_at_all_its_writers_and_readers() {
    let (model, stage) = (short_residual(), Stage::new());
    let fitted = stage.rows(&model, &[rows(&[3, 6, 6], 40)]);
    let pruning = Pruning::of(&stage.workshop, &Draft::new(&model).unwrap(), &fitted, &Alone).unwrap();
    assert!(!pruning.reaches(Depth::Inside) && pruning.reaches(Depth::Streams));
    let (whole, _) = pruning.cut(0.5, Depth::Inside).unwrap();
    assert_eq!(weight(&whole, "second"), [32, 32, 3, 3]);
    assert!(!pruning.narrows(0.94, Depth::Streams), "engines compute eight channels at a time");
    assert!(pruning.narrows(0.75, Depth::Streams));
    let (cut, how) = pruning.cut(0.5, Depth::Streams).unwrap();
    assert_eq!(how, "16 of 32 channels inside of 1 stream");
    assert_eq!((weight(&cut, "first"), weight(&cut, "second")), (&[16, 3, 3, 3][..], &[16, 16, 3, 3][..]));
    assert_eq!(weight(&cut, "normal"), [16]);
    let last = cut.nodes.iter().find(|node| node.op_type == "MatMul").unwrap();
    assert_eq!(cut.constants[&last.input[1]].dims(), [16, 5]);
    let fresh = stage.rows(&model, &[rows(&[3, 6, 6], 8)]);
    let apart = apart(&stage, &model, &cut, &fresh);
    assert!(apart < 2e-2, "{apart}");
}

#[test]
fn streams_are_cut_with_the_blocks_inside_and_stay_at_depth_inside() {
    let (model, stage) = (residual(), Stage::new());
    let fitted = stage.rows(&model, &[rows(&[6], 300)]);
    let pruning = Pruning::of(&stage.workshop, &Draft::new(&model).unwrap(), &fitted, &Alone).unwrap();
    let (cut, how) = pruning.cut(0.5, Depth::Streams).unwrap();
    // Sixteen channels: twelve of the stream would cost as much.
    assert_eq!(how, "48 of 88 channels inside of 1 block and 1 stream");
    let products = cut.nodes.iter().filter(|node| node.op_type == "MatMul");
    let weights: Vec<&[usize]> = products.map(|node| cut.constants[&node.input[1]].dims()).collect();
    assert_eq!(weights, [[6, 16], [16, 32], [32, 16], [16, 5]]);
    // The stem is linear in six numbers: sixteen channels carry as much as twenty-four, except for the block's
    // adds.
    let apart = apart(&stage, &model, &cut, &fitted);
    assert!(apart < 0.5, "{apart}");
    let (inside, _) = pruning.cut(0.5, Depth::Inside).unwrap();
    assert_eq!((weight(&inside, "stream"), weight(&inside, "hidden")), (&[6, 24][..], &[24, 32][..]));
}

#[test]
fn channels_by_least_squares_lose_less_than_the_first() {
    let (model, stage) = (residual(), Stage::new());
    let fitted = stage.rows(&model, &[rows(&[6], 300)]);
    let draft = Draft::new(&model).unwrap();
    let mut pruning = Pruning::of(&stage.workshop, &draft, &fitted, &Alone).unwrap();
    let fresh = Random::new(99).normals(200 * 6);
    let fresh = parm_protocol::Tensor::from_f32([200, 6].as_slice(), &fresh).unwrap();
    let fresh = stage.rows(&model, &[fresh]);
    let lost =
        |pruning: &Pruning| apart(&stage, &model, &pruning.cut(0.25, Depth::Inside).unwrap().0, &fresh);
    let chosen = lost(&pruning);
    let inside = pruning.blocks.iter_mut().find(|block| !block.is_stream).unwrap();
    inside.kept.sort_unstable();
    let first = lost(&pruning);
    assert!(chosen < 0.8 * first, "error {chosen} must be well below {first}");
}

#[test]
fn refusal_names_the_operator_that_mixes_channels() {
    let (mut builder, x) = Builder::reading("mixed", 1, Value::batch_of_f32("x", &[6]));
    let wide = constant(&mut builder, "wide", &[6, 24]);
    let features = builder.node("MatMul", "features", &[&x, &wide]);
    let mixed = builder.node_with("Softmax", "mixed", &[&features], [("axis", 1.into())]);
    let last = constant(&mut builder, "last", &[24, 5]);
    builder.node("MatMul", "y", &[&mixed, &last]);
    builder.output(Value::batch_of_f32("y", &[5]));
    let (model, stage) = (builder.build().unwrap(), Stage::new());
    let rows = stage.rows(&model, &[rows(&[6], 24)]);
    let pruning = Pruning::of(&stage.workshop, &Draft::new(&model).unwrap(), &rows, &Alone).unwrap();
    assert!(!pruning.reaches(Depth::Inside) && !pruning.reaches(Depth::Streams));
    assert_eq!(pruning.refusal(), "every layer's channels lead to Softmax (1)");
}
