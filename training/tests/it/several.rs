//! Networks with several inputs: words of a sentence with a mask.

use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::{Builder, DataType, Dense, Model, Tensor, Value};
use parm_random::Random;
use parm_training::base::{Base, TrainedBase, tune};
use parm_training::data::{Parts, Samples};
use parm_training::fit::Settings;
use parm_training::parity::{Materials, ParityRecipe};
use parm_training::stand_in::{StandInRecipe, examine, train};
use parm_training::{Array, Device, Error, Teacher, parity};

use crate::task::{self, alone, model, run, untaught};

const WORDS: usize = 20;
const LENGTH: usize = 6;
const CLASSES: usize = 3;

/// The mean of the unmasked words, through a layer.
fn network(seed: u64, end: &str) -> Model {
    let mut net = Builder::new("sentences", seed);
    let numbers = |name: &str| Value { datatype: DataType::Int64, ..Value::batch_of_f32(name, &[LENGTH]) };
    let (ids, mask) = (net.input(numbers("ids")), net.input(numbers("mask")));
    let values = net.random("table").normals(WORDS * 8);
    let table = net.constant(Tensor::from_f32("table", &[WORDS, 8], &values).unwrap());
    let words = net.node("Gather", "words", &[&table, &ids]);
    let counts = net.node_with("Cast", "counts", &[&mask], [("to", 1i64.into())]);
    let axis = net.constant(Tensor::from_i64("axis", &[1], &[2]).unwrap());
    let counts = net.node("Unsqueeze", "columns", &[&counts, &axis]);
    let shown = net.node("Mul", "shown", &[&words, &counts]);
    let mean = net.node_with(
        "ReduceMean",
        "mean",
        &[&shown],
        [("axes", vec![1i64].into()), ("keepdims", 0i64.into())],
    );
    let scores = net.dense("scores", &mean, Dense { inputs: 8, outputs: CLASSES }).unwrap();
    net.node(end, "said", &[&scores]);
    net.output(Value::batch_of_f32("said", &[CLASSES]));
    net.opset(17).build().unwrap()
}

/// Sentences whose class is one of the first three words: words behind the mask's end do not count.
fn sentences(rows: usize, seed: u64) -> Samples {
    let mut random = Random::new(seed);
    let (mut ids, mut mask, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rows {
        let (class, length) = (random.below(CLASSES), 1 + random.below(LENGTH - 1));
        let word = |at: usize| if at < length { class } else { CLASSES + at };
        let wrong = random.below(CLASSES);
        ids.extend((0..LENGTH).map(|at| if at + 1 == LENGTH { wrong } else { word(at) } as f32));
        mask.extend((0..LENGTH).map(|at| f32::from(u8::from(at < length))));
        labels.push(class);
    }
    let array = |data| Array::new(vec![rows, LENGTH], data).unwrap();
    let (inputs, parts) = Parts::join(vec![array(ids), array(mask)]).unwrap();
    Samples { parts, ..Samples::new(inputs, Some(labels)).unwrap() }
}

/// A network's answers to rows.
fn said(graph: &Model, rows: &Samples) -> Array<f32> {
    Teacher::predict(&task::network(graph, rows), &rows.inputs).unwrap()
}

fn tuned(graph: &Model) -> Model {
    let base = Base { held_out: 50, run: run(12), ..Base::default() };
    let trained = alone(|around| tune(&sentences(300, 1), &base, graph, Device::Cpu, around)).unwrap();
    assert!(trained.score > 0.95, "{}", trained.score);
    model(&trained.model)
}

#[test]
fn training_continues_from_weights_with_two_inputs() {
    for end in ["Identity", "Softmax"] {
        let graph = tuned(&network(1, end));
        let rows = sentences(100, 2);
        let said = said(&graph, &rows);
        let sums = said.data().chunks_exact(CLASSES).map(|row| row.iter().sum::<f32>());
        assert_eq!(
            sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-4),
            end == "Softmax",
            "the output must keep its softmax"
        );
    }
}

#[test]
fn network_with_two_inputs_learns_from_another() {
    let (deployed, candidate) = (tuned(&network(1, "Softmax")), network(2, "Softmax"));
    let (rows, unseen) = (sentences(400, 3), sentences(100, 4));
    let (outputs, truth) = (said(&deployed, &rows), said(&deployed, &unseen));
    let recipe = StandInRecipe { held_out: 50, run: run(12), ..StandInRecipe::default() };
    let materials = Materials { samples: &rows, graph: &candidate, teacher: None, outputs: Some(&outputs) };
    let trained = alone(|around| train(materials, &recipe, Device::Cpu, around)).unwrap();
    let materials = Materials { samples: &unseen, outputs: Some(&truth), ..materials };
    let standing = examine(materials, (&trained.model, Meaning::Probabilities), None, Device::Cpu).unwrap();
    assert!(standing.agreement > Some(0.9), "{standing:?}");
}

#[test]
fn rows_of_another_model_are_rejected_with_advice() {
    let graph = network(1, "Identity");
    let refused = |rows: &Samples| {
        let base = Base { run: run(1), ..Base::default() };
        alone(|around| tune(rows, &base, &graph, Device::Cpu, around)).map(|_| ()).unwrap_err()
    };
    let whole = sentences(20, 1);
    let one = Samples { parts: Parts::default(), ..whole.clone() };
    assert_eq!(refused(&one), Error::Inputs { inputs: 2, given: 1 });
    let arrays = [LENGTH, LENGTH + 1].map(|length| Array::full(vec![20, length], 1.0)).to_vec();
    let (inputs, parts) = Parts::join(arrays).unwrap();
    let longer = Samples { inputs, parts, ..whole.clone() };
    assert!(refused(&longer).to_string().contains("mask"), "{}", refused(&longer));
    let labels = (0..20).map(|row| row % 5).collect();
    let more = Samples { labels: Some(labels), ..whole.clone() };
    assert_eq!(refused(&more), Error::Label { row: 3, label: 3, classes: CLASSES });
    let huge = Samples { labels: Some(vec![1 << 60; 20]), ..whole.clone() };
    assert!(matches!(refused(&huge), Error::Label { .. }));
    let materials = untaught(&whole, &graph);
    let recipe = ParityRecipe { run: run(1), ..ParityRecipe::default() };
    let code = alone(|around| parity::train(materials, &recipe, Device::Cpu, around)).map(|_| ());
    assert_eq!(code.unwrap_err(), Error::OneInput { inputs: 2 });
}

/// Trains on rows for one epoch with this step size.
fn learned(rows: &Samples, graph: &Model, epochs: u64, rate: f32) -> TrainedBase {
    let base = Base { held_out: 50, run: Settings { rate, ..run(epochs) }, ..Base::default() };
    alone(|around| tune(rows, &base, graph, Device::Cpu, around)).unwrap()
}

#[test]
fn initial_weights_stay_when_training_does_not_help() {
    let (rows, good) = (sentences(300, 1), tuned(&network(1, "Softmax")));
    let hardly = learned(&rows, &good, 1, 1e-9);
    assert!(hardly.score > 0.95, "{}", hardly.score);
    // Random weights score low.
    assert!(learned(&rows, &network(1, "Softmax"), 1, 1e-9).score < 0.8);
    // All answers are right already, so no step can improve them.
    let kept = learned(&rows, &good, 1, 1e-3);
    assert_eq!(kept.score, 1.0);
    let table =
        |model: &Model| model.graph().unwrap().constant("table").unwrap().unwrap().to_f32().unwrap().to_vec();
    assert_eq!(table(&model(&kept.model)), table(&good));
}

#[test]
fn network_with_any_last_operator_learns_numbers() {
    let rows = sentences(300, 1);
    let mut hot = vec![0.0; 300 * CLASSES];
    rows.labels.iter().flatten().enumerate().for_each(|(row, &class)| hot[row * CLASSES + class] = 1.0);
    let values = Array::new(vec![300, CLASSES], hot.clone()).unwrap();
    let rows = Samples { labels: None, values: Some(values), ..rows };
    for end in ["Softmax", "Sigmoid", "Identity"] {
        let trained = learned(&rows, &network(1, end), 30, 3e-3);
        let said = said(&model(&trained.model), &rows);
        let off = said.data().iter().zip(&hot).map(|(a, b)| (a - b).powi(2)).sum::<f32>() / hot.len() as f32;
        assert!(off < 0.06, "{end}: {off}");
    }
}

#[test]
fn classes_per_part_of_a_row_are_rejected() {
    let mut net = Builder::new("tags", 1);
    let x = net.input(Value::batch_of_f32("x", &[4]));
    let scores = net.dense("scores", &x, Dense { inputs: 4, outputs: 6 }).unwrap();
    let to = net.constant(Tensor::from_i64("to", &[3], &[0, 2, 3]).unwrap());
    net.node("Reshape", "y", &[&scores, &to]);
    net.output(Value::batch_of_f32("y", &[2, 3]));
    let rows =
        Samples::new(Array::full(vec![30, 4], 1.0), Some((0..30).map(|row| row % 3).collect())).unwrap();
    let graph = net.build().unwrap();
    let refused = |run| {
        let base = Base { run, ..Base::default() };
        alone(|around| tune(&rows, &base, &graph, Device::Cpu, around)).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(run(1)), Error::ClassDims { dims: vec![2, 3] });
    assert!(matches!(refused(Settings { batch: 0, ..run(1) }), Error::Setting { .. }));
}

#[test]
fn teacher_rejects_rows_of_another_length() {
    let rows = sentences(10, 1);
    let teacher = task::network(&network(1, "Softmax"), &rows);
    let shorter = Array::full(vec![10, LENGTH], 1.0);
    assert_eq!(Teacher::predict(&teacher, &shorter).unwrap_err(), Error::Parts { given: vec![LENGTH] });
}
