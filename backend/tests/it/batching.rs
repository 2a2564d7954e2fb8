//! Batching of requests, and models that want batches of the sizes that their `config.pbtxt` prefers.

use std::collections::BTreeMap;
use std::path::Path;

use parm_backend::engine::Spec;
use parm_backend::{Batching, Config, EngineConfig};
use parm_parity_models::onnx::{Builder, Tensor as Weights, Value};
use parm_protocol::{InferRequest, InferenceService, ModelRef, NamedTensor, Tensor};
use parm_workload::distribution::Distribution;

use crate::support::{Served, config, quick, request, values};

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
    let mut graph = Builder::new("m", 1);
    let input = graph.input(Value::batch_of_f32("input", &[4]));
    let doubled = graph.node("Add", "output", &[&input, &input]);
    graph.output(Value::batch_of_f32(&doubled, &[4]));
    put(root.path(), "m", graph, "max_batch_size: 0");
    let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
    let models = Some(root.path().into());
    let served = Served::start(Config { models, engine, emulated: BTreeMap::new(), ..batching(0.0) });
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

/// Adds 0, 10, 20 and 30 to the rows of a batch: it runs on four rows, and fails on two or eight. `max_batch_size` says that
/// they are rows, although they depend on their place in the batch.
fn write(root: &Path, sizes: &str) {
    let mut graph = Builder::new("four", 1);
    let input = graph.input(Value::batch_of_f32("x", &[1]));
    let four = graph.constant(Weights::from_f32("four", &[4, 1], &[0., 10., 20., 30.]).unwrap());
    let sum = graph.node("Add", "y", &[&input, &four]);
    graph.output(Value::batch_of_f32(&sum, &[1]));
    let text = format!("max_batch_size: 16\ndynamic_batching {{ preferred_batch_size: [ {sizes} ] }}\n");
    put(root, "four", graph, &text);
}

/// Writes a model with its configuration.
fn put(root: &Path, name: &str, graph: Builder, config: &str) {
    let folder = root.join(name).join("1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
    std::fs::write(root.join(name).join("config.pbtxt"), config).unwrap();
}

fn start(root: &Path) -> Served {
    let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
    Served::start(Config { models: Some(root.into()), engine, ..Config::default() })
}

#[tokio::test]
async fn engine_is_asked_for_listed_sizes_only() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "4");
    let served = start(root.path());
    let request = |rows: &[f32]| InferRequest {
        model: ModelRef::latest("four"),
        inputs: vec![NamedTensor::new("x", Tensor::from_f32([rows.len(), 1].as_slice(), rows).unwrap())],
        ..request(&[])
    };
    let answer = served.infer(request(&[1.0, 2.0])).await.unwrap();
    assert_eq!(values(&answer), [1.0, 12.0]);
    let answer = served.infer(request(&[1.0; 6])).await.unwrap();
    assert_eq!(values(&answer), [1.0, 11.0, 21.0, 31.0, 1.0, 11.0], "in two parts");
}

#[tokio::test]
async fn model_that_fails_on_a_listed_size_is_refused() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "4, 8");
    let served = start(root.path());
    let error = served.worker.model_config(&ModelRef::latest("four")).unwrap_err().to_string();
    assert!(error.contains("8 rows, a preferred_batch_size of config.pbtxt"), "{error}");
}
