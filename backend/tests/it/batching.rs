//! Batching of requests.

use std::collections::BTreeMap;
use std::path::Path;

use parm_backend::engine::Spec;
use parm_backend::{Batching, Config, EngineConfig};
use parm_parity_models::onnx::{Builder, Value};
use parm_protocol::{InferenceService, ModelRef};
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

/// Writes a model with its configuration.
fn put(root: &Path, name: &str, graph: Builder, config: &str) {
    let folder = root.join(name).join("1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
    std::fs::write(root.join(name).join("config.pbtxt"), config).unwrap();
}
