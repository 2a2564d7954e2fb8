//! Models that are added, changed and removed while others are served.

use std::path::Path;
use std::time::{Duration, Instant};

use parm_backend::{Config, VersionPolicy};
use parm_parity_models::onnx::{Builder, Tensor as Weights, Value};
use parm_protocol::{InferenceService, ModelRef};

use crate::support::{Served, of_folder, put, request, values};

fn model(outputs: usize) -> Vec<u8> {
    let mut graph = Builder::new("m", 1);
    let input = graph.input(Value::batch_of_f32("input", &[4]));
    let ones = Weights::from_f32("ones", &[4, outputs], &vec![1.0; 4 * outputs]).unwrap();
    let ones = graph.constant(ones);
    let sums = graph.node("MatMul", "output", &[&input, &ones]);
    graph.output(Value::batch_of_f32(&sums, &[outputs]));
    graph.build().unwrap().bytes().to_vec()
}

fn served(root: &Path, versions: VersionPolicy) -> Served {
    Served::start(Config { versions, reload: Duration::from_millis(1), ..of_folder(root) })
}

/// Repeats a request until the answer has this many values. Reloading depends on the clock, so the wait is limited.
async fn until_width(served: &Served, width: usize) {
    let started = Instant::now();
    loop {
        let answer = served.infer(request(&[1.; 4])).await.unwrap();
        if values(&answer).len() == width {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "still {} values", values(&answer).len());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn valid_new_version_takes_over_and_a_broken_one_does_not() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "m", 1, &model(1), &[]);
    let served = served(root.path(), VersionPolicy::Latest);
    put(root.path(), "m", 2, &model(2), &[]);
    until_width(&served, 2).await;
    put(root.path(), "m", 3, b"not an ONNX graph", &[]);
    let started = Instant::now();
    let broken = || {
        let index = served.worker.repository_index(false).unwrap();
        index.into_iter().find(|index| index.version == "3" && !index.reason.is_empty())
    };
    while broken().is_none() {
        assert!(started.elapsed() < Duration::from_secs(30), "the broken version must be tried");
        tokio::task::yield_now().await;
    }
    assert_eq!(broken().unwrap().state, "UNAVAILABLE");
    until_width(&served, 2).await;
}

#[tokio::test]
async fn all_versions_are_served_if_the_policy_is_all() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "m", 1, &model(1), &[]);
    put(root.path(), "m", 7, &model(2), &[]);
    let served = served(root.path(), VersionPolicy::All);
    let metadata = served.worker.model_metadata(&ModelRef::latest("m")).unwrap();
    assert_eq!(metadata.versions, ["1", "7"]);
    let old = ModelRef { name: "m".into(), version: Some("1".into()) };
    assert_eq!(served.worker.model_metadata(&old).unwrap().outputs[0].shape, [-1, 1]);
    until_width(&served, 2).await;
}

#[tokio::test]
async fn broken_model_is_listed_and_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "m", 1, &model(1), &[]);
    put(root.path(), "broken", 1, b"not an ONNX graph", &[]);
    let served = served(root.path(), VersionPolicy::Latest);
    let index = served.worker.repository_index(false).unwrap();
    let states: Vec<_> = index.iter().map(|index| (index.name.as_str(), index.state.as_str())).collect();
    assert_eq!(states, [("broken", "UNAVAILABLE"), ("m", "READY")]);
    assert!(!index[0].reason.is_empty());
    assert!(served.worker.is_ready());
}
