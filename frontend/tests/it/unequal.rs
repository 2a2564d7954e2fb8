//! Batches of rows of unequal lengths, and batches that are left to the server.

use std::sync::Arc;

use parm_frontend::{Config, Frontend};
use parm_protocol::{
    InferRequest, InferResponse, ModelConfig, ModelMetadata, ModelRef, NamedTensor, PADDED, Padding,
    Parameters, Tensor,
};
use parm_settings::{BatchSize, PolicyKind};

use crate::rig::{MS, config, frontend, infer, start, until, with};
use crate::scripted::{Act, Scripted, doubler};

/// The doubler for rows of any length, whose outputs are as long.
fn variable() -> ModelMetadata {
    let mut model = doubler("double");
    model.inputs.iter_mut().chain(&mut model.outputs).for_each(|tensor| tensor.shape = vec![-1, -1]);
    model
}

/// An instance with the variable model, which takes padded rows or not.
fn instance(name: &str, pads: bool) -> Arc<Scripted> {
    let instance = Scripted::quick(name, 10);
    instance.serve(&[variable()]);
    let axes = ["y", "z"].map(|name| (name.to_owned(), vec![1]));
    let mut stated = ModelConfig { max_batch_size: 64, ..ModelConfig::default() }.with_digest("a");
    stated.set_padding(pads.then_some(&Padding { mask: "x".into(), axes: axes.into() }));
    instance.says_config(stated);
    instance
}

fn batches(size: BatchSize, policy: PolicyKind) -> Config {
    let mut config = config(policy);
    config.dispatch.batch.max_size = size;
    config
}

fn eight() -> BatchSize {
    std::num::NonZeroU16::new(8).unwrap().into()
}

/// A request of one row of ones, so long.
fn row(length: usize) -> InferRequest {
    let x = Tensor::from_f32([1, length].as_slice(), &vec![1.0; length]).unwrap();
    InferRequest {
        model: ModelRef::latest("double"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", x)],
        outputs: Vec::new(),
    }
}

fn is_answer(response: &InferResponse, length: usize) -> bool {
    let expected = |factor: f32| Tensor::from_f32([1, length].as_slice(), &vec![factor; length]).unwrap();
    response.outputs[0].tensor == expected(2.0) && response.outputs[1].tensor == expected(-1.0)
}

/// The shapes of the requests that an instance receives while it is busy with a first row, once all are answered.
async fn shapes(frontend: &Frontend, instances: &[&Arc<Scripted>], lengths: &[usize]) -> Vec<Vec<usize>> {
    let busy = start(frontend, row(40));
    until("the first row runs", || instances.iter().any(|instance| !instance.seen.lock().is_empty())).await;
    let asked: Vec<_> = lengths.iter().map(|length| start(frontend, row(*length))).collect();
    for (asked, length) in asked.into_iter().zip(lengths) {
        let answer = asked.await.unwrap().unwrap();
        assert!(is_answer(&answer, *length), "{length}: {:?}", answer.outputs);
    }
    assert!(is_answer(&busy.await.unwrap().unwrap(), 40));
    let seen = instances.iter().flat_map(|instance| instance.seen.lock().clone());
    let mut shapes: Vec<Vec<usize>> = seen.map(|asked| asked.inputs[0].tensor.shape().to_vec()).collect();
    shapes.sort();
    shapes
}

#[tokio::test(start_paused = true)]
async fn rows_are_padded_and_their_answers_cut_back() {
    let instance = instance("a", true);
    let frontend = frontend(batches(eight(), PolicyKind::None), &[&instance]).await;
    let shapes = shapes(&frontend, &[&instance], &[20, 21, 90]).await;
    assert_eq!(shapes, [[1, 40], [1, 90], [2, 21]]);
    let seen = instance.seen.lock();
    let padded: Vec<_> = seen.iter().filter(|asked| asked.parameters.contains_key(PADDED)).collect();
    assert_eq!(padded.len(), 1, "the worker can refuse it");
    let x = padded[0].inputs[0].tensor.as_f32().unwrap();
    assert_eq!(
        [x[20], x[41]].map(|value| value == 0.0),
        [true, false],
        "in the order of their arrival: {x:?}"
    );
}

/// A frontend that knows that lengths of this instance's rows cost nothing.
async fn of_flat_time(instance: &Arc<Scripted>) -> Frontend {
    let frontend = frontend(batches(eight(), PolicyKind::None), &[instance]).await;
    for length in 1..200 {
        infer(&frontend, row(length)).await.unwrap();
    }
    instance.seen.lock().clear();
    frontend
}

/// With 65,536 values an element, the outputs of 128 elements have 64 MiB.
#[tokio::test(start_paused = true)]
async fn rows_are_not_padded_where_that_makes_a_huge_batch() {
    let huge = 1 << 20;
    let cases: [(&[usize], _, &[[usize; 2]]); 2] = [
        (&[26, 30, huge, 25], None, &[[1, 40], [1, huge], [3, 30]]),
        (&[60, 61, 62, 63, 20, 21, 20], Some(1 << 16), &[[1, 40], [2, 61], [2, 63], [3, 21]]),
    ];
    for (lengths, values, expected) in cases {
        let instance = instance("a", true);
        let mut model = variable();
        model.outputs.iter_mut().for_each(|output| output.shape.extend(values));
        instance.serve(&[model]);
        let frontend = of_flat_time(&instance).await;
        assert_eq!(shapes(&frontend, &[&instance], lengths).await, expected);
    }
}

/// A worker rejects padded rows if its model takes none, and each such rejection would count against it.
#[tokio::test(start_paused = true)]
async fn instance_gets_no_statement_of_a_client_about_padding() {
    for pads in [true, false] {
        let instance = instance("a", pads);
        let frontend = frontend(batches(eight(), PolicyKind::Hedge), &[&instance]).await;
        let answer = infer(&frontend, with(row(3), PADDED, true)).await;
        assert_eq!(answer.is_ok(), pads, "{answer:?}");
        let states = |asked: &InferRequest| asked.parameters.contains_key(PADDED);
        assert!(!instance.seen.lock().iter().any(states));
    }
}

#[tokio::test(start_paused = true)]
async fn rows_stay_apart_unless_all_instances_take_padding() {
    for (pads, size, policy) in [
        ([false, false], eight(), PolicyKind::None),
        ([true, false], eight(), PolicyKind::None),
        ([true, true], BatchSize::ONE, PolicyKind::None),
    ] {
        let instances = [instance("a", pads[0]), instance("b", pads[1])];
        let frontend = frontend(batches(size, policy), &instances.each_ref()).await;
        let shapes = shapes(&frontend, &instances.each_ref(), &[20, 21, 20, 21]).await;
        assert!(shapes.iter().all(|shape| [20, 21, 40].contains(&shape[1])), "{pads:?} {shapes:?}");
        let unpadded = |asked: &InferRequest| !asked.parameters.contains_key(PADDED);
        assert!(instances.iter().all(|instance| instance.seen.lock().iter().all(unpadded)), "{pads:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_are_tried_alone_if_padding_ends_while_they_wait() {
    let instance = instance("a", true);
    let frontend = frontend(batches(eight(), PolicyKind::None), &[&instance]).await;
    // Longer than the interval in which models are described again.
    instance.then(Act::Answer(15_000 * MS));
    let row = |length| with(row(length), "timeout", 60_000_000u64);
    let busy = start(&frontend, row(40));
    until("it is busy", || !instance.seen.lock().is_empty()).await;
    let asked = [20, 21].map(|length| (length, start(&frontend, row(length))));
    // The model is replaced by one that takes no padding.
    instance.says_config(ModelConfig { max_batch_size: 64, ..ModelConfig::default() }.with_digest("b"));
    for (length, asked) in asked {
        assert!(is_answer(&asked.await.unwrap().unwrap(), length), "{length}");
    }
    assert!(busy.await.unwrap().is_ok());
    let unpadded = |asked: &InferRequest| !asked.parameters.contains_key(PADDED);
    assert!(instance.seen.lock().iter().all(unpadded));
}
