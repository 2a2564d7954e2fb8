//! Batching of requests, and models whose first dimension is a batch or only looks like one.

use std::collections::BTreeMap;

use parm_backend::engine::Spec;
use parm_backend::{Batching, Config};
use parm_parity_models::onnx::{Attribute, Builder, Tensor as Weights, Value};
use parm_protocol::fleet::ROWS;
use parm_protocol::{Code, InferenceService, ModelRef};
use parm_workload::distribution::Distribution;

use crate::support::{Served, config, of_folder, put, quick, request, values, with};

/// A model for which a batch of 8 pays if `per_row_ms` is less than the service time of a single row.
fn batching(per_row_ms: f64) -> Config {
    let time_ms = Distribution::Constant { value: 0.5 };
    let spec = Spec { time_ms, per_row_ms, ..quick() };
    let batching = Batching { max_batch: 8.try_into().unwrap() };
    Config { emulated: BTreeMap::from([("m".into(), spec)]), batching, ..config() }
}

#[tokio::test]
async fn batched_requests_get_their_own_rows() {
    let served = Served::start(batching(0.0));
    served.stall();
    let first = served.send(request(&[0.; 4])).await;
    served.until_pending(0.0).await;
    let one = served.send(request(&[1., 2., 0., 0.])).await;
    let two = served.send(request(&[3., 4., 0., 0., 5., 6., 0., 0.])).await;
    served.release();
    first.await.unwrap().unwrap();
    assert_eq!(values(&one.await.unwrap().unwrap()), [1., 2.]);
    assert_eq!(values(&two.await.unwrap().unwrap()), [3., 4., 5., 6.]);
    let statistics = &served.worker.statistics(Some(&ModelRef::latest("m"))).unwrap()[0];
    let sizes: Vec<_> = statistics.batch_stats.iter().map(|batch| batch.batch_size).collect();
    assert_eq!(
        (sizes, statistics.execution_count, statistics.inference_stats.success.count),
        (vec![1, 3], 2, 3)
    );
}

#[tokio::test]
async fn requests_that_do_not_fit_wait_for_the_next_batch() {
    let served = Served::start(batching(0.0));
    served.stall();
    let first = served.send(request(&[0.; 4])).await;
    served.until_pending(0.0).await;
    let large: Vec<_> = [served.send(request(&[1.; 24])).await, served.send(request(&[2.; 24])).await].into();
    served.release();
    first.await.unwrap().unwrap();
    for (answer, expected) in large.into_iter().zip([2., 4.]) {
        assert_eq!(values(&answer.await.unwrap().unwrap()), [expected; 12]);
    }
    assert_eq!(served.metric("nv_inference_exec_count"), 3.0);
}

#[tokio::test]
async fn batching_is_off_for_a_model_that_it_slows_down() {
    let served = Served::start(batching(5.0));
    assert_eq!(served.metric("parm_instance_batch_limit"), 1.0);
    assert!(served.metric("parm_instance_batch_speedup") < 1.0);
    let pays = Served::start(batching(0.0));
    assert_eq!(pays.metric("parm_instance_batch_limit"), 8.0);
}

#[tokio::test]
async fn unbatched_model_runs_every_request_separately() {
    let root = tempfile::tempdir().unwrap();
    let doubled = |graph: &mut Builder, input: &str| graph.node("Add", "doubled", &[input, input]);
    put(root.path(), "m", 1, &graph(doubled), &[("../config.pbtxt", "max_batch_size: 0")]);
    let batching = batching(0.0).batching;
    let served = Served::start(Config { batching, ..of_folder(root.path()) });
    assert_eq!(served.metric("parm_instance_batch_limit"), 1.0);
    let config = served.worker.model_config(&ModelRef::latest("m")).unwrap();
    assert_eq!((config.max_batch_size, &*config.input[0].dims), (0, &[-1, 4][..]));
    served.stall();
    let first = served.send(request(&[0.; 4])).await;
    served.until_pending(0.0).await;
    let lengths = [served.send(request(&[1.; 12])).await, served.send(request(&[2.; 8])).await];
    served.release();
    first.await.unwrap().unwrap();
    for (answer, expected) in lengths.into_iter().zip([vec![2.; 12], vec![4.; 8]]) {
        assert_eq!(values(&answer.await.unwrap().unwrap()), expected);
    }
    let statistics = &served.worker.statistics(Some(&ModelRef::latest("m"))).unwrap()[0];
    let sizes: Vec<_> = statistics.batch_stats.iter().map(|batch| batch.batch_size).collect();
    assert_eq!((sizes, statistics.execution_count), (vec![1], 3));
}

/// A graph of rows of four values.
fn graph(operators: impl FnOnce(&mut Builder, &str) -> String) -> Vec<u8> {
    let mut graph = Builder::new("m", 1);
    let input = graph.input(Value::batch_of_f32("input", &[4]));
    let output = operators(&mut graph, &input);
    graph.output(Value::batch_of_f32(&output, &[4]));
    graph.build().unwrap().bytes().to_vec()
}

/// A softmax of each row, and a running sum over the rows if they are to depend on each other.
fn softmax(mixes: bool) -> Vec<u8> {
    graph(|graph, input| {
        let rows = graph.node_with("Softmax", "s", &[input], [("axis", Attribute::Int(1))]);
        if !mixes {
            return rows;
        }
        let axis = graph.constant(Weights::from_i64("axis", &[], &[0]).unwrap());
        graph.node("CumSum", "mix", &[&rows, &axis])
    })
}

/// A frontend that described an older file of the model sends parts of requests.
#[tokio::test]
async fn part_of_a_request_is_rejected_when_rows_depend() {
    for (mixes, rejected) in [(true, Some(Code::NotFound)), (false, None)] {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "m", 1, &softmax(mixes), &[]);
        let served = Served::start(of_folder(root.path()));
        assert!(served.infer(request(&[0.5; 4])).await.is_ok(), "{mixes}");
        let part = served.infer(with(request(&[0.5; 4]), ROWS, true)).await;
        assert_eq!(part.err().map(|error| error.code()), rejected, "{mixes}");
    }
}

#[tokio::test]
async fn configuration_overrules_what_was_shown() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "m", 1, &softmax(true), &[("../config.pbtxt", "max_batch_size: 8")]);
    let config = Served::start(of_folder(root.path())).worker.model_config(&ModelRef::latest("m")).unwrap();
    assert_eq!((config.max_batch_size, config.unbatched()), (8, None));
}
