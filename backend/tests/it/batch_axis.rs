//! Models whose first dimension is a batch, and models whose first dimension only looks like one.

use std::path::Path;

use parm_backend::Config;
use parm_parity_models::onnx::{Attribute, Builder, DataType, Dense, Dim, Tensor as Weights, Value};
use parm_protocol::fleet::ROWS;
use parm_protocol::{Code, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor};
use parm_workload::Random;

use crate::support::{Served, values};

const WIDTH: usize = 6;

/// Layers that mix rows. The kinds of dependencies are tested where rows are compared.
#[derive(Clone, Copy, Debug)]
enum Mix {
    RunningSum,
    Pairwise,
}

/// A random network of rows of six values: dense layers, a softmax of each row, and at most one layer that mixes rows.
fn write(folder: &Path, name: &str, seed: u64, mix: Option<Mix>) {
    let mut random = Random::of(seed, [1]);
    let mut graph = Builder::new(name, seed);
    let mut last = graph.input(Value::batch_of_f32("x", &[WIDTH]));
    for at in 0..1 + random.below(3) {
        let dense = Dense { inputs: WIDTH, outputs: WIDTH };
        let dense = graph.dense(&format!("d{at}"), &last, dense).unwrap();
        last = graph.node_with("Softmax", &format!("s{at}"), &[&dense], [("axis", Attribute::Int(1))]);
    }
    let (last, columns) = match mix {
        None => (last, Dim::Fixed(WIDTH)),
        Some(Mix::RunningSum) => {
            let axis = graph.constant(Weights::from_i64("axis", &[], &[0]).unwrap());
            (graph.node("CumSum", "mix", &[&last, &axis]), Dim::Fixed(WIDTH))
        }
        Some(Mix::Pairwise) => {
            let turned = graph.node("Transpose", "turned", &[&last]);
            (graph.node("MatMul", "mix", &[&last, &turned]), Dim::Symbol("batch".into()))
        }
    };
    let shape = Some(vec![Dim::Symbol("batch".into()), columns]);
    graph.output(Value { name: last, datatype: DataType::Float, shape });
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

async fn answer(served: &Served, model: &str, rows: &[f32]) -> Vec<f32> {
    values(&served.infer(request(model, rows)).await.unwrap())
}

#[tokio::test]
async fn first_dimension_is_a_batch_only_if_rows_are_independent() {
    let folder = tempfile::tempdir().unwrap();
    let mixes = |seed: u64| [Some(Mix::RunningSum), Some(Mix::Pairwise), None][seed as usize % 3];
    for seed in 0..9 {
        write(folder.path(), &format!("m{seed}"), seed, mixes(seed));
    }
    let served = start(folder.path());
    for seed in 0..9 {
        let (name, mix) = (format!("m{seed}"), mixes(seed));
        let config = served.worker.model_config(&ModelRef::latest(&name)).unwrap();
        let splits = config.max_batch_size > 0;
        assert_eq!(splits, mix.is_none(), "{name} with {mix:?}: {:?}", config.unbatched());
        assert_eq!(config.unbatched().is_some(), mix.is_some());
        let rows = Random::of(seed, [2]).normals(3 * WIDTH);
        let together = answer(&served, &name, &rows).await;
        let mut alone = Vec::new();
        for row in rows.chunks(WIDTH) {
            alone.extend(answer(&served, &name, row).await);
        }
        let close = |(one, other): (&f32, &f32)| (one - other).abs() < 1e-3;
        let same = together.len() == alone.len() && together.iter().zip(&alone).all(close);
        assert_eq!(same, splits, "{name} with {mix:?}: {together:?} and {alone:?}");
    }
}

/// A frontend that described an older file of the model sends parts of requests.
#[tokio::test]
async fn part_of_a_request_is_rejected_when_rows_depend() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "sums", 1, Some(Mix::RunningSum));
    write(folder.path(), "rows", 1, None);
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
    write(folder.path(), "sums", 1, Some(Mix::RunningSum));
    let engine = parm_backend::EngineConfig { name: "tract".into(), ..Default::default() };
    let batched = vec!["sums".into()];
    let config = Config { models: Some(folder.path().into()), engine, batched, ..Config::default() };
    let served = Served::start(config);
    let config = served.worker.model_config(&ModelRef::latest("sums")).unwrap();
    assert_eq!((config.max_batch_size, config.unbatched()), (1024, None));
    std::fs::write(folder.path().join("sums/config.pbtxt"), "max_batch_size: 8").unwrap();
    let config = start(folder.path()).worker.model_config(&ModelRef::latest("sums")).unwrap();
    assert_eq!((config.max_batch_size, config.unbatched()), (8, None));
}
