//! Networks with several outputs: a class, its probability, and sizes in the thousands.

use parm_parity_models::bundle::{Meaning, Start};
use parm_parity_models::onnx::{Builder, DataType, Dense, Dim, Model, Tensor, Value};
use parm_random::Random;
use parm_training::base::{Base, tune};
use parm_training::code::{self, CodeRecipe};
use parm_training::data::Samples;
use parm_training::evaluate::Metric;
use parm_training::parity::Materials;
use parm_training::stand_in::{StandInRecipe, TrainedStandIn, examine, train};
use parm_training::{Array, Device, Error, Host, Loss};

use crate::task::{self, alone, model, run, untaught};

const FEATURES: usize = 6;
const CLASSES: usize = 4;

/// A network with these of the three outputs, in this order.
fn network(seed: u64, outputs: &[&str]) -> Model {
    let mut net = Builder::new("three", seed);
    let x = net.input(Value::batch_of_f32("x", &[FEATURES]));
    let hidden = net.dense("hidden", &x, Dense { inputs: FEATURES, outputs: 24 }).unwrap();
    let bent = net.node("Tanh", "bent", &[&hidden]);
    let scores = net.dense("scores", &bent, Dense { inputs: 24, outputs: CLASSES }).unwrap();
    let shares = net.node("Softmax", "shares", &[&scores]);
    let class =
        net.node_with("ArgMax", "class", &[&shares], [("axis", 1i64.into()), ("keepdims", 0i64.into())]);
    let small = net.dense("small", &bent, Dense { inputs: 24, outputs: 2 }).unwrap();
    let thousand = net.constant(Tensor::from_f32("thousand", &[1], &[1000.0]).unwrap());
    let sizes = net.node("Mul", "sizes", &[&small, &thousand]);
    for name in outputs {
        net.output(match *name {
            "class" => Value {
                name: class.clone(),
                datatype: DataType::Int64,
                shape: Some(vec![Dim::Symbol("batch".into())]),
            },
            "shares" => Value::batch_of_f32(&shares, &[CLASSES]),
            _ => Value::batch_of_f32(&sizes, &[2]),
        });
    }
    net.opset(17).build().unwrap()
}

fn rows(count: usize, seed: u64) -> Samples {
    let values = Random::new(seed).normals(count * FEATURES);
    Samples::new(Array::new(vec![count, FEATURES], values).unwrap(), None).unwrap()
}

fn recipe() -> StandInRecipe {
    StandInRecipe { start: Start::Scratch, held_out: 60, run: run(60), ..StandInRecipe::default() }
}

fn taught(deployed: &Model, recipe: &StandInRecipe) -> Result<TrainedStandIn, Error> {
    let samples = rows(600, 3);
    alone(|around| train(untaught(&samples, deployed), recipe, Device::Cpu, around))
}

/// The float outputs.
fn said(model: &Model, rows: &Samples) -> Vec<Array<f32>> {
    let outputs = task::network(model, rows).predict(&[Host::Floats(rows.inputs.clone())]).unwrap();
    let floats = outputs.into_iter().filter_map(|output| match output {
        Host::Floats(floats) => Some(floats),
        _ => None,
    });
    floats.collect()
}

/// For each float output, the unexplained share of the variance between rows.
fn wrong(deployed: &Model, other: &Model) -> Vec<f64> {
    let fresh = rows(200, 4);
    let share = |(truth, answer): (&Array<f32>, &Array<f32>)| {
        let mean = truth.data().iter().map(|&v| f64::from(v)).sum::<f64>() / truth.data().len() as f64;
        let square = |off: f64| off * off;
        let off: f64 = truth.data().iter().zip(answer.data()).map(|(a, b)| square(f64::from(a - b))).sum();
        off / truth.data().iter().map(|&v| square(f64::from(v) - mean)).sum::<f64>()
    };
    said(deployed, &fresh).iter().zip(&said(other, &fresh)).map(share).collect()
}

#[test]
fn all_outputs_are_taught_whatever_their_scale() {
    let deployed = network(1, &["class", "shares", "sizes"]);
    let trained = taught(&deployed, &recipe()).unwrap();
    assert_eq!((trained.meaning, trained.calibration), (Meaning::Values, None));
    let learned = model(&trained.model);
    let names =
        |model: &Model| model.graph().unwrap().outputs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&learned), names(&deployed));
    let (before, after) =
        (wrong(&deployed, &network(2, &["class", "shares", "sizes"])), wrong(&deployed, &learned));
    assert!(
        after.iter().all(|share| *share < 0.1) && before.iter().all(|share| *share > 0.4),
        "{before:?} {after:?}"
    );
    let (fresh, trained) = (rows(200, 4), (&trained.model, trained.meaning));
    let standing = examine(untaught(&fresh, &deployed), trained, None, Device::Cpu).unwrap();
    assert_eq!((standing.metric, standing.agreement), (Metric::AbsoluteError, None));
    assert!(standing.deployed == 0.0 && standing.stand_in > 0.0 && standing.stand_in < 100.0, "{standing:?}");
}

#[test]
fn outputs_next_to_a_class_are_taught_alone() {
    let deployed = network(1, &["class", "shares"]);
    let trained = taught(&deployed, &recipe()).unwrap();
    assert_eq!(trained.meaning, Meaning::Probabilities);
    assert!(trained.calibration.is_some() && trained.marks.degraded > 0.8, "{:?}", trained.marks);
    assert!(wrong(&deployed, &model(&trained.model))[0] < 0.1);
}

#[test]
fn augmented_copies_get_new_answers_of_equal_spread() {
    // Rows with a line of six pixels, which mirroring changes.
    let mut net = Builder::new("lines", 1);
    let x = net.input(Value::batch_of_f32("x", &[1, 1, FEATURES]));
    let flat = net.node("Flatten", "flat", &[&x]);
    let one = net.dense("one", &flat, Dense { inputs: FEATURES, outputs: 1 }).unwrap();
    let many = net.dense("many", &flat, Dense { inputs: FEATURES, outputs: 3 }).unwrap();
    let hundred = net.constant(Tensor::from_f32("hundred", &[1], &[100.0]).unwrap());
    let large = net.node("Mul", "large", &[&many, &hundred]);
    net.output(Value::batch_of_f32(&one, &[1]));
    net.output(Value::batch_of_f32(&large, &[3]));
    let deployed = net.opset(17).build().unwrap();
    let samples = rows(400, 5);
    let inputs = samples.inputs.reshape(vec![400, 1, 1, FEATURES]).unwrap();
    let samples = Samples::new(inputs, None).unwrap();
    let augment = parm_training::Augmentation { shift: 0, flip: true };
    let recipe = StandInRecipe { augment, ..recipe() };
    let materials = untaught(&samples, &deployed);
    let trained = alone(|around| train(materials, &recipe, Device::Cpu, around)).unwrap();
    assert!(trained.marks.degraded > 0.9, "{:?}", trained.marks);
}

#[test]
fn labels_belong_to_the_first_float_output() {
    let graph = network(1, &["class", "shares", "sizes"]);
    let samples = rows(300, 3);
    let labels = samples.inputs.data().chunks(FEATURES).map(|row| usize::from(row[0] > 0.0)).collect();
    let samples = Samples { labels: Some(labels), ..samples };
    let base = Base { held_out: 50, run: run(30), ..Base::default() };
    let tuned = alone(|around| tune(&samples, &base, &graph, Device::Cpu, around)).unwrap();
    assert!(tuned.score > 0.9, "{}", tuned.score);
}

#[test]
fn code_is_learned_for_the_first_float_output() {
    let (deployed, samples) = (network(1, &["class", "shares"]), rows(300, 3));
    let recipe = CodeRecipe { held_out: 60, run: run(1), ..CodeRecipe::default() };
    let trained =
        alone(|around| code::train(&samples, None, &deployed, &recipe, Device::Cpu, around)).unwrap();
    assert!(trained.marks.reconstructions > 0);
}

#[test]
fn training_rejects_outputs_that_cannot_be_taught() {
    let deployed = network(1, &["shares", "sizes"]);
    let classes = StandInRecipe { loss: Some(Loss::Kl), ..recipe() };
    let refused = taught(&deployed, &classes).unwrap_err();
    assert!(refused.to_string().contains("mse or huber"), "{refused}");
    // Outputs of another program, for one of the two.
    let (samples, graph) = (rows(100, 3), &deployed);
    let outputs = Array::full(vec![100, CLASSES], 0.25);
    let materials = Materials { samples: &samples, graph, teacher: None, outputs: Some(&outputs) };
    let refused = alone(|around| train(materials, &recipe(), Device::Cpu, around)).unwrap_err();
    assert_eq!(refused, Error::Outputs { outputs: CLASSES + 2, values: CLASSES });
    // A class whose scores are not an output: its weights would not be trained.
    let refused = taught(&network(1, &["class", "sizes"]), &recipe()).unwrap_err();
    assert_eq!(refused, Error::Untaught { output: "class".into() });
    // Numbers of several outputs have no best class.
    let stand_in = network(2, &["shares", "sizes"]).bytes().clone();
    let materials = Materials { outputs: None, ..materials };
    let top = examine(materials, (&stand_in, Meaning::Values), Some(Metric::TOP_1), Device::Cpu).unwrap_err();
    assert!(top.to_string().contains("absolute-error"), "{top}");
    // A state that runs along another axis than the rows.
    let mut net = Builder::new("state", 1);
    let x = net.input(Value::batch_of_f32("x", &[FEATURES]));
    let y = net.dense("y", &x, Dense { inputs: FEATURES, outputs: 2 }).unwrap();
    let turned = net.node_with("Transpose", "turned", &[&y], [("perm", vec![1i64, 0].into())]);
    net.output(Value::batch_of_f32(&y, &[2]));
    let shape = Some(vec![Dim::Fixed(2), Dim::Symbol("batch".into())]);
    net.output(Value { name: turned, datatype: DataType::Float, shape });
    let refused = taught(&net.opset(17).build().unwrap(), &recipe()).unwrap_err();
    assert!(refused.to_string().contains("'turned'"), "{refused}");
}
