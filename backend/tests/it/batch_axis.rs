//! Models whose first dimension is a batch, and models whose first dimension only looks like one.

use std::path::Path;

use parm_backend::Config;
use parm_parity_models::onnx::{Attribute, Builder, Tensor as Weights, Value};
use parm_protocol::fleet::ROWS;
use parm_protocol::{Code, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor};

use crate::support::Served;

const WIDTH: usize = 6;

/// A softmax of each row of six values, and a running sum over the rows if they are to depend on each other.
fn write(folder: &Path, name: &str, mixes: bool) {
    let mut graph = Builder::new(name, 1);
    let input = graph.input(Value::batch_of_f32("x", &[WIDTH]));
    let mut last = graph.node_with("Softmax", "s", &[&input], [("axis", Attribute::Int(1))]);
    if mixes {
        let axis = graph.constant(Weights::from_i64("axis", &[], &[0]).unwrap());
        last = graph.node("CumSum", "mix", &[&last, &axis]);
    }
    graph.output(Value::batch_of_f32(&last, &[WIDTH]));
    let folder = folder.join(name).join("1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
}

fn start(folder: &Path) -> Served {
    let engine = parm_backend::EngineConfig { name: "tract".into(), ..Default::default() };
    Served::start(Config { models: Some(folder.into()), engine, ..Config::default() })
}

fn request(model: &str, rows: &[f32]) -> InferRequest {
    let tensor = Tensor::from_f32([rows.len() / WIDTH, WIDTH].as_slice(), rows).unwrap();
    InferRequest {
        model: ModelRef::latest(model),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: vec![],
    }
}

/// A frontend that described an older file of the model sends parts of requests.
#[tokio::test]
async fn part_of_a_request_is_rejected_when_rows_depend() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sums", true);
    write(folder.path(), "rows", false);
    let served = start(folder.path());
    for (model, rejected) in [("sums", Some(Code::NotFound)), ("rows", None)] {
        let mut part = request(model, &[0.5; WIDTH]);
        assert!(served.infer(part.clone()).await.is_ok(), "{model}");
        part.parameters.insert(ROWS.into(), true.into());
        assert_eq!(served.infer(part).await.err().map(|error| error.code()), rejected, "{model}");
    }
}

#[tokio::test]
async fn configuration_overrules_what_was_shown() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sums", true);
    std::fs::write(folder.path().join("sums/config.pbtxt"), "max_batch_size: 8").unwrap();
    let config = start(folder.path()).worker.model_config(&ModelRef::latest("sums")).unwrap();
    assert_eq!((config.max_batch_size, config.unbatched()), (8, None));
}
