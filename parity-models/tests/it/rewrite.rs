//! Parity graphs compute the same as deployed graphs, in every slot.

use std::num::NonZeroUsize;

use parm_parity_models::onnx::proto::ModelProto;
use parm_parity_models::onnx::rewrite::{Design, Draft, End, Weights, derive};
use parm_parity_models::onnx::{Builder, DataType, Defect, Dense, Graph, Limits, Model, Node, Tensor, Value};
use parm_random::Random;
use prost::Message;

use crate::sample;

fn slots(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// k stems, k heads, deployed weights.
fn parity(k: usize) -> Design {
    Design { stem: slots(k), head: slots(k), end: End::AsDeployed, start: Weights::Deployed }
}

fn graph(model: &Model) -> Graph {
    model.graph().unwrap()
}

fn operators(model: &Model) -> Vec<String> {
    graph(model).nodes.into_iter().map(|node: Node| node.op).collect()
}

/// Runs the deployed model on a batch, and the parity on the same batch repeated for each slot; compares every slot.
fn check(deployed: &Model, k: usize) {
    let derived = derive(deployed, &parity(k)).unwrap();
    assert_eq!(derived.inspect().findings, [], "k = {k}");
    let shape: Vec<usize> =
        graph(deployed).inputs[0].shape.iter().flatten().skip(1).map(|d| d.fixed().unwrap()).collect();
    let (rows, row) = (3, shape.iter().product::<usize>());
    let queries = Random::new(k as u64).uniforms(1.0, rows * row);
    let wide: Vec<f32> = queries.chunks(row).flat_map(|query| query.repeat(k)).collect();
    let mut wide_shape = shape.clone();
    wide_shape[0] *= k;
    let expect = sample::rows(deployed, rows, &shape, &queries);
    let actual = sample::rows(&derived, rows, &wide_shape, &wide);
    for (expect, actual) in expect.iter().zip(&actual) {
        assert_eq!(actual.len(), k * expect.len());
        for slot in actual.chunks(expect.len()) {
            let apart = slot.iter().zip(expect).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "k = {k}: {slot:?} is not {expect:?}");
        }
    }
}

#[test]
fn equal_queries_give_the_deployed_prediction_in_every_slot() {
    for k in [2, 3] {
        check(&sample::mlp(), k);
        check(&sample::lenet(), k);
        check(&sample::resnet(), k);
        check(&sample::channels_last(), k);
        check(&sample::two_branches(), k);
    }
}

/// The slots whose answers change if one slot gets another query.
#[test]
fn slot_of_a_divided_network_reads_only_its_own_query() {
    for deployed in [sample::mlp(), sample::lenet(), sample::resnet()] {
        let derived = derive(&deployed, &Design { start: Weights::Divided, ..parity(2) }).unwrap();
        assert_eq!(derived.inspect().findings, []);
        let shape: Vec<usize> =
            graph(&derived).inputs[0].shape.iter().flatten().skip(1).map(|d| d.fixed().unwrap()).collect();
        let size: usize = shape.iter().product();
        let queries = Random::new(1).uniforms(1.0, size);
        let mut other = queries.clone();
        other[size / 2..].fill(0.5);
        let (before, after) =
            (sample::rows(&derived, 1, &shape, &queries), sample::rows(&derived, 1, &shape, &other));
        let (first, second) = before[0].split_at(before[0].len() / 2);
        let (same, changed) = after[0].split_at(after[0].len() / 2);
        assert_eq!(first, same);
        assert_ne!(second, changed);
    }
}

fn linear() -> Model {
    let (mut linear, x) = Builder::reading("linear", sample::SEED, Value::batch_of_f32("x", &[5]));
    linear.dense("y", &x, Dense { inputs: 5, outputs: 3 }).unwrap();
    linear.build_with(Value::batch_of_f32("y", &[3])).unwrap()
}

#[test]
fn divided_linear_model_is_exact_in_every_slot() {
    let linear = linear();
    let derived = derive(&linear, &Design { start: Weights::Divided, ..parity(3) }).unwrap();
    let queries = Random::new(1).uniforms(1.0, 15);
    let (actual, expect) =
        (sample::rows(&derived, 1, &[15], &queries), sample::rows(&linear, 3, &[5], &queries));
    actual[0].iter().zip(expect.concat()).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} {b}"));
}

#[test]
fn linear_stem_averages_unequal_queries() {
    let linear = linear();
    let derived = derive(&linear, &Design { head: slots(1), ..parity(2) }).unwrap();
    let queries = Random::new(1).uniforms(1.0, 10);
    let mean: Vec<f32> = (0..5).map(|at| (queries[at] + queries[at + 5]) / 2.0).collect();
    let (actual, expect) =
        (sample::rows(&derived, 1, &[10], &queries), sample::rows(&linear, 1, &[5], &mean));
    actual[0].iter().zip(&expect[0]).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} {b}"));
}

#[test]
fn parity_of_a_plain_network_adds_one_reshape() {
    let (deployed, derived) = (sample::lenet(), derive(&sample::lenet(), &parity(4)).unwrap());
    let mut expect = operators(&deployed);
    expect.insert(expect.len() - 1, "Reshape".into());
    assert_eq!(operators(&derived), expect);
    let graph = graph(&derived);
    assert_eq!(graph.initializers["conv1.weight"].dims(), [4, 4, 5, 5]);
    assert_eq!(graph.initializers["fc2.weight"].dims(), [20, 16]);
    assert_eq!(graph.initializers["fc2.bias"].dims(), [20]);
    assert_eq!(graph.nodes.last().unwrap().int("axis"), Ok(Some(2)));
    assert_eq!(graph.inputs[0].protocol_shape(), Some(vec![-1, 4, 12, 12]));
    assert_eq!(graph.outputs[0].protocol_shape(), Some(vec![-1, 4, 5]));
}

#[test]
fn one_slot_leaves_the_graph_unchanged() {
    let derived = derive(&sample::resnet(), &parity(1)).unwrap();
    assert_eq!(graph(&derived), graph(&sample::resnet()));
}

#[test]
fn reshape_with_a_fixed_size_gets_the_wide_size() {
    for target in [[-1, 36], [0, -1], [0, 36]] {
        let (mut graph, x) = Builder::reading("reshape", sample::SEED, Value::batch_of_f32("x", &[1, 6, 6]));
        let shape = graph.constant(Tensor::from_i64("shape", &[2], &target).unwrap());
        let flat = graph.node("Reshape", "flat", &[&x, &shape]);
        graph.dense("y", &flat, Dense { inputs: 36, outputs: 4 }).unwrap();
        graph.output(Value::batch_of_f32("y", &[4]));
        let model = graph.build().unwrap();
        check(&model, 2);
        let derived = derive(&model, &Design { head: slots(1), ..parity(2) }).unwrap();
        assert_eq!(operators(&derived), ["Reshape", "Gemm"]);
    }
}

#[test]
fn copied_tail_has_separate_weights_for_every_slot() {
    let derived = graph(&derive(&sample::two_branches(), &parity(3)).unwrap());
    let offsets = derived.initializers.keys().filter(|name| name.starts_with("offset"));
    assert_eq!(offsets.count(), 3);
}

#[test]
fn weights_without_a_softmax_fit_the_graph_with_it() {
    let raw = derive(&sample::lenet(), &Design { end: End::Raw, ..parity(2) }).unwrap();
    assert!(!operators(&raw).contains(&"Softmax".into()));
    assert_eq!(graph(&raw).outputs[0].name, "probabilities");
    let kept = derive(&sample::lenet(), &parity(2)).unwrap();
    let weights: Vec<Tensor> =
        graph(&raw).initializers.into_values().filter(|tensor| tensor.datatype().is_float()).collect();
    assert!(kept.with_weights(&weights).is_ok());
}

#[test]
fn shared_weights_are_given_to_each_reader() {
    let mut proto = sample::resnet().proto().clone();
    let graph_proto = proto.graph.as_mut().unwrap();
    // Some exporters store equal initialisers once and distribute them.
    graph_proto.initializer.retain(|tensor| !tensor.name.starts_with("bn2"));
    for part in ["weight", "bias", "running_mean", "running_var"] {
        let mut identity = graph_proto.node[0].clone();
        (identity.op_type, identity.name) = ("Identity".into(), part.into());
        identity.attribute.clear();
        (identity.input, identity.output) = (vec![format!("bn1.{part}")], vec![format!("bn2.{part}")]);
        graph_proto.node.insert(0, identity);
    }
    let node = graph_proto.node.iter_mut().find(|node| node.name == "conv2").unwrap();
    node.input.push("bn1.bias".into());
    let shared = Model::from_bytes(proto.encode_to_vec(), &Limits::default()).unwrap();
    let own = Draft::new(&shared).unwrap().finish().unwrap();
    assert_eq!(operators(&own), operators(&sample::resnet()));
    let graph = graph(&own);
    let read: Vec<&String> =
        graph.nodes.iter().flat_map(|n| &n.inputs).filter(|i| graph.initializers.contains_key(*i)).collect();
    let distinct: std::collections::BTreeSet<&String> = read.iter().copied().collect();
    assert_eq!(read.len(), distinct.len());
}

#[test]
fn random_weights_depend_only_on_the_seed() {
    let scratch =
        |seed| derive(&sample::channels_last(), &Design { start: Weights::Scratch { seed }, ..parity(2) });
    let (first, again, other) = (scratch(1).unwrap(), scratch(1).unwrap(), scratch(2).unwrap());
    assert_eq!(first.bytes(), again.bytes());
    let (first, other) = (graph(&first), graph(&other));
    let deployed = graph(&derive(&sample::channels_last(), &parity(2)).unwrap());
    let same: Vec<&str> = first
        .initializers
        .keys()
        .filter(|name| first.initializers[*name] == other.initializers[*name])
        .map(String::as_str)
        .collect();
    assert!(same.contains(&"mean") && same.contains(&"deviation"), "{same:?}");
    assert_eq!(first.initializers["mean"], deployed.initializers["mean"]);
    let weight = first.initializers["conv.weight"].to_f32().unwrap();
    let bound = (2.0f32 * 3.0 * 9.0).sqrt().recip();
    assert!(
        weight.iter().all(|value| value.abs() <= bound)
            && weight.iter().any(|value| value.abs() > bound / 2.0)
    );
    assert!(!same.contains(&"conv.weight") && !same.contains(&"offset"), "{same:?}");
    let scratch = Design { start: Weights::Scratch { seed: 3 }, ..parity(2) };
    let scratch = graph(&derive(&sample::resnet(), &scratch).unwrap());
    for (name, value) in
        [("bn1.weight", 1.0), ("bn1.bias", 0.0), ("bn1.running_mean", 0.0), ("bn1.running_var", 1.0)]
    {
        assert_eq!(scratch.initializers[name].to_f32().unwrap(), [value; 6], "{name}");
    }
}

#[test]
fn error_of_widening_names_the_node() {
    let refused =
        |graph: Builder, parity: &Design| derive(&graph.build().unwrap(), parity).unwrap_err().to_string();
    let widened = |build: fn(&mut Builder, &str) -> String| {
        let (mut graph, x) = Builder::reading("odd", sample::SEED, Value::batch_of_f32("x", &[4]));
        let y = build(&mut graph, &x);
        graph.output(Value::batch_of_f32(&y, &[4]));
        refused(graph, &parity(2))
    };
    let joined = widened(|graph, x| {
        let hidden = graph.dense("fc", x, Dense { inputs: 4, outputs: 4 }).unwrap();
        graph.node("Add", "residual", &[x, &hidden])
    });
    assert!(joined.starts_with("Add 'residual' reads 'x', a form of the input"), "{joined}");
    let none = widened(|graph, x| graph.node("Relu", "y", &[x]));
    assert!(none.starts_with("output 'y' does not pass a Conv"), "{none}");
    let quantised = widened(|graph, x| graph.node("ConvInteger", "quantised", &[x, x]));
    assert!(quantised.starts_with("ConvInteger 'quantised' is quantised"), "{quantised}");
    let scalar = |parity: &Design| {
        let (mut scalar, x) = Builder::reading("scalar", sample::SEED, Value::batch_of_f32("x", &[]));
        scalar.node("Relu", "y", &[&x]);
        scalar.output(Value::batch_of_f32("y", &[]));
        refused(scalar, parity)
    };
    let (rank, last) = (scalar(&parity(2)), scalar(&Design { stem: slots(1), ..parity(2) }));
    assert!(rank.starts_with("input 'x FP32[batch]' has no second dimension"), "{rank}");
    assert!(last.starts_with("output 'y' does not come from a Conv"), "{last}");
}

#[test]
fn invalid_graph_is_rejected_before_any_change() {
    let mut proto: ModelProto = sample::mlp().proto().clone();
    proto.graph.as_mut().unwrap().node[1].input[0] = "gone".into();
    let broken = Model::from_bytes(proto.encode_to_vec(), &Limits::default()).unwrap();
    let error = derive(&broken, &parity(2)).unwrap_err();
    assert!(matches!(error, Defect::Unsound { .. }), "{error}");
}

#[test]
fn integer_inputs_widen_through_an_embedding() {
    let mut graph = Builder::new("tokens", sample::SEED);
    let shape = Value::batch_of_f32("tokens", &[6]).shape;
    let tokens = graph.input(Value { name: "tokens".into(), datatype: DataType::Int64, shape });
    let table = graph.random("table").uniforms(1.0, 50);
    let table = graph.constant(Tensor::from_f32("table", &[10, 5], &table).unwrap());
    let x = graph.node("Gather", "embedded", &[&table, &tokens]);
    let weight = graph.random("weight").uniforms(1.0, 35);
    let weight = graph.constant(Tensor::from_f32("weight", &[5, 7], &weight).unwrap());
    let x = graph.node("MatMul", "mixed", &[&x, &weight]);
    let x =
        graph.node_with("ReduceMean", "pooled", &[&x], [("axes", vec![1i64].into()), ("keepdims", 0.into())]);
    graph.dense("y", &x, Dense { inputs: 7, outputs: 3 }).unwrap();
    graph.output(Value::batch_of_f32("y", &[3]));
    let deployed = graph.build().unwrap();
    let derived = derive(&deployed, &parity(2)).unwrap();
    let queries: Vec<i64> = vec![1, 2, 3, 9, 0, 4];
    let expect = sample::tokens(&deployed, &queries);
    let actual = sample::tokens(&derived, &queries.repeat(2));
    for slot in actual.chunks(3) {
        slot.iter().zip(&expect).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{actual:?} {expect:?}"));
    }
}
