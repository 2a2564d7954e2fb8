//! Models that want batches of the sizes that their `config.pbtxt` prefers.

use std::path::Path;

use parm_backend::{Config, EngineConfig};
use parm_parity_models::onnx::{Builder, Tensor as Weights, Value};
use parm_protocol::{InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor};

use crate::support::{Served, values};

/// Adds 0, 10, 20 and 30 to the rows of a batch: it runs on four rows, and fails on two or eight.
fn write(root: &Path, sizes: &str) {
    let mut graph = Builder::new("four", 1);
    let input = graph.input(Value::batch_of_f32("x", &[1]));
    let four = graph.constant(Weights::from_f32("four", &[4, 1], &[0., 10., 20., 30.]).unwrap());
    let sum = graph.node("Add", "y", &[&input, &four]);
    graph.output(Value::batch_of_f32(&sum, &[1]));
    let folder = root.join("four/1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
    let text = format!("max_batch_size: 16\ndynamic_batching {{ preferred_batch_size: [ {sizes} ] }}\n");
    std::fs::write(root.join("four/config.pbtxt"), text).unwrap();
}

fn start(root: &Path) -> Served {
    let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
    // Its rows depend on their place in the batch.
    let batched = vec!["four".into()];
    Served::start(Config { models: Some(root.into()), engine, batched, ..Config::default() })
}

#[tokio::test]
async fn engine_is_asked_for_listed_sizes_only() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "4");
    let served = start(root.path());
    let request = |rows: &[f32]| InferRequest {
        model: ModelRef::latest("four"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", Tensor::from_f32([rows.len(), 1].as_slice(), rows).unwrap())],
        outputs: vec![],
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
