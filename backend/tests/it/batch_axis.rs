//! Models whose first dimension is a batch, and models whose first dimension only looks like one.

use std::path::Path;

use parm_backend::Config;
use parm_parity_models::onnx::{Attribute, Builder, DataType, Dense, Dim, Tensor as Weights, Value};
use parm_protocol::fleet::ROWS;
use parm_protocol::{Code, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor};
use parm_workload::Random;

use crate::support::{Served, values};

const WIDTH: usize = 6;

/// Layers that mix rows.
#[derive(Clone, Copy, Debug)]
enum Mix {
    SoftmaxOverRows,
    MinusMeanOfRows,
    RunningSum,
    Pairwise,
    Sequence,
    /// Adds the number of rows beyond two.
    RowsBeyondTwo,
}

const MIXES: [Mix; 6] = [
    Mix::SoftmaxOverRows,
    Mix::MinusMeanOfRows,
    Mix::RunningSum,
    Mix::Pairwise,
    Mix::Sequence,
    Mix::RowsBeyondTwo,
];

/// A random network of rows of six values: dense layers, a softmax of each row, and at most one layer that mixes rows.
fn write(folder: &Path, name: &str, seed: u64, mix: Option<Mix>) {
    let mut random = Random::of(seed, [1]);
    let mut graph = Builder::new(name, seed);
    let mut last = graph.input(Value::batch_of_f32("x", &[WIDTH]));
    let layers = 1 + random.below(3);
    let place = random.below(layers);
    let mut columns = Dim::Fixed(WIDTH);
    for at in 0..layers {
        let dense = Dense { inputs: WIDTH, outputs: WIDTH };
        let dense = graph.dense(&format!("d{at}"), &last, dense).unwrap();
        last = match random.below(3) {
            0 => graph.node("Tanh", &format!("t{at}"), &[&dense]),
            1 => graph.node_with("Softmax", &format!("s{at}"), &[&dense], [("axis", Attribute::Int(1))]),
            _ => dense,
        };
        if let Some(mix) = mix.filter(|_| at == place) {
            last = mixed(&mut graph, mix, &last);
            if matches!(mix, Mix::Pairwise) {
                columns = Dim::Symbol("batch".into());
                break;
            }
        }
    }
    let shape = Some(vec![Dim::Symbol("batch".into()), columns]);
    graph.output(Value { name: last, datatype: DataType::Float, shape });
    let folder = folder.join(name).join("1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
}

fn mixed(graph: &mut Builder, mix: Mix, rows: &str) -> String {
    let whole = |graph: &mut Builder, name: &str, dims: &[usize], values: &[i64]| {
        graph.constant(Weights::from_i64(name, dims, values).unwrap())
    };
    match mix {
        Mix::SoftmaxOverRows => graph.node_with("Softmax", "mix", &[rows], [("axis", Attribute::Int(0))]),
        Mix::MinusMeanOfRows => {
            let axes = [("axes", Attribute::Ints(vec![0])), ("keepdims", Attribute::Int(1))];
            let mean = graph.node_with("ReduceMean", "mean", &[rows], axes);
            graph.node("Sub", "mix", &[rows, &mean])
        }
        Mix::RunningSum => {
            let axis = whole(graph, "axis", &[], &[0]);
            graph.node("CumSum", "mix", &[rows, &axis])
        }
        Mix::Pairwise => {
            let turned = graph.node("Transpose", "turned", &[rows]);
            graph.node("MatMul", "mix", &[rows, &turned])
        }
        Mix::RowsBeyondTwo => {
            let zeros = graph.node("Sub", "zeros", &[rows, rows]);
            let mut number =
                |name: &str, value: f32| graph.constant(Weights::from_f32(name, &[], &[value]).unwrap());
            let (one, two) = (number("one", 1.0), number("two", 2.0));
            let ones = graph.node("Add", "ones", &[&zeros, &one]);
            let axes = whole(graph, "axes", &[1], &[0]);
            let count =
                graph.node_with("ReduceSum", "count", &[&ones, &axes], [("keepdims", Attribute::Int(1))]);
            let beyond = graph.node("Sub", "beyond", &[&count, &two]);
            let beyond = graph.node("Relu", "most", &[&beyond]);
            graph.node("Add", "mix", &[rows, &beyond])
        }
        Mix::Sequence => {
            let mut weights = |name: &str| {
                let values = graph.random(name).uniforms(0.7, 4 * WIDTH * WIDTH);
                graph.constant(Weights::from_f32(name, &[1, 4 * WIDTH, WIDTH], &values).unwrap())
            };
            let (own, back) = (weights("w"), weights("r"));
            let one = whole(graph, "one", &[1], &[1]);
            let steps = graph.node("Unsqueeze", "steps", &[rows, &one]);
            let size = [("hidden_size", Attribute::Int(WIDTH as i64))];
            let states = graph.node_with("LSTM", "lstm", &[&steps, &own, &back], size);
            let flat = whole(graph, "flat", &[2], &[-1, WIDTH as i64]);
            graph.node("Reshape", "mix", &[&states, &flat])
        }
    }
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

/// Property over random networks: one is declared to take batches exactly if its rows may be split.
#[tokio::test]
async fn first_dimension_is_a_batch_only_if_rows_are_independent() {
    let folder = tempfile::tempdir().unwrap();
    let mixes = |seed: u64| MIXES.get(seed as usize % (2 * MIXES.len())).copied();
    for seed in 0..40 {
        write(folder.path(), &format!("m{seed}"), seed, mixes(seed));
    }
    let served = start(folder.path());
    for seed in 0..40 {
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
