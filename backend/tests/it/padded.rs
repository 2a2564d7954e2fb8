//! Models that take padded rows, and models that do not mask the padding.

use std::path::Path;

use parm_backend::engine::by_name;
use parm_backend::{Config, EngineConfig, try_file};
use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Tensor as Weights, Value};
use parm_protocol::{InferenceService, ModelConfig, ModelRef, Padding};

use crate::support::Served;

const WIDTH: usize = 4;
const WORDS: usize = 5;

fn dims(row: &[&str], width: Option<usize>) -> Option<Vec<Dim>> {
    let open = row.iter().map(|name| Dim::Symbol((*name).into()));
    Some(open.chain(width.map(Dim::Fixed)).collect())
}

/// Writes an encoder of token ids: a vector for each token, and their mean by an attention over all tokens. Unless it is
/// `masked`, the attention ignores the mask.
fn write(root: &Path, name: &str, inputs: [&str; 2], masked: bool) {
    let mut graph = Builder::new(name, 1);
    let whole = |name: &str| Value {
        name: name.into(),
        datatype: DataType::Int64,
        shape: dims(&["batch", "length"], None),
    };
    let [ids, mask] = inputs.map(|name| graph.input(whole(name)));
    let table = graph.random("table").normals(WORDS * WIDTH);
    let table = graph.constant(Weights::from_f32("words", &[WORDS, WIDTH], &table).unwrap());
    let weights = graph.random("weights").normals(WIDTH);
    let weights = graph.constant(Weights::from_f32("weights", &[WIDTH, 1], &weights).unwrap());
    let two = graph.constant(Weights::from_i64("two", &[1], &[2]).unwrap());
    let one = graph.constant(Weights::from_i64("one", &[1], &[1]).unwrap());
    let number = |graph: &mut Builder, name: &str, value| {
        graph.constant(Weights::from_f32(name, &[], &[value]).unwrap())
    };
    let (full, low) = (number(&mut graph, "full", 1.0), number(&mut graph, "low", -1e4));
    let tokens = graph.node("Gather", "tokens", &[&table, &ids]);
    let seen = graph.node_with("Cast", "seen", &[&mask], [("to", Attribute::Int(1))]);
    let unseen = graph.node("Sub", "unseen", &[&full, &seen]);
    let least = graph.node("Mul", "least", &[&unseen, &low]);
    let scores = graph.node("MatMul", "products", &[&tokens, &weights]);
    let scores = graph.node("Squeeze", "scores", &[&scores, &two]);
    let scores = if masked { graph.node("Add", "masked", &[&scores, &least]) } else { scores };
    let parts = graph.node_with("Softmax", "parts", &[&scores], [("axis", Attribute::Int(1))]);
    let parts = graph.node("Unsqueeze", "columns", &[&parts, &two]);
    let weighted = graph.node("Mul", "weighted", &[&tokens, &parts]);
    let keep = [("keepdims", Attribute::Int(0))];
    let pooled = graph.node_with("ReduceSum", "pooled", &[&weighted, &one], keep);
    let floats = |name: String, shape| Value { name, datatype: DataType::Float, shape };
    graph.output(floats(tokens, dims(&["batch", "length"], Some(WIDTH))));
    graph.output(floats(pooled, dims(&["batch"], Some(WIDTH))));
    let folder = root.join(name).join("1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
}

/// Declares the mask of a model.
fn declare(root: &Path, name: &str, mask: &str) {
    let text = format!("parameters {{ key: \"parm_mask\" value: {{ string_value: \"{mask}\" }} }}");
    std::fs::write(root.join(name).join("config.pbtxt"), text).unwrap();
}

fn start(root: &Path) -> Served {
    let engine = EngineConfig { name: "tract".into(), ..EngineConfig::default() };
    Served::start(Config { models: Some(root.into()), engine, ..Config::default() })
}

fn config(served: &Served, name: &str) -> ModelConfig {
    served.worker.model_config(&ModelRef::latest(name)).unwrap()
}

fn by_token(mask: &str) -> Option<Padding> {
    Some(Padding { mask: mask.into(), axes: [("tokens".to_owned(), vec![1])].into() })
}

const USUAL: [&str; 2] = ["input_ids", "attention_mask"];
const OTHER: [&str; 2] = ["words_in", "valid"];

#[tokio::test]
async fn padding_is_stated_only_if_answers_stay_the_same() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "masked", USUAL, true);
    write(root.path(), "unmasked", USUAL, false);
    write(root.path(), "other", OTHER, true);
    write(root.path(), "declared", OTHER, true);
    declare(root.path(), "declared", "valid");
    write(root.path(), "forbidden", USUAL, true);
    declare(root.path(), "forbidden", "");
    let served = start(root.path());
    for (name, mask) in [("masked", "attention_mask"), ("declared", "valid")] {
        assert_eq!(config(&served, name).padding(), by_token(mask), "{name}");
    }
    for name in ["unmasked", "other", "forbidden"] {
        assert_eq!(config(&served, name).padding(), None, "{name}");
        assert!(config(&served, name).max_batch_size > 1, "{name} is served");
    }
}

#[tokio::test]
async fn model_is_refused_if_its_declared_mask_does_not_mask() {
    let root = tempfile::tempdir().unwrap();
    let models = [
        ("masked", "attention_mask", None),
        ("forbidden", "", None),
        ("named", "no", Some("no input 'no'")),
        ("unmasked", "attention_mask", Some("is not that of the row alone")),
    ];
    for (name, mask, _) in models {
        write(root.path(), name, USUAL, name != "unmasked");
        declare(root.path(), name, mask);
    }
    let served = start(root.path());
    let engine = by_name("tract", &EngineConfig::default()).unwrap();
    for (name, _, reason) in models {
        // What `parm doctor` and `parm models inspect` say is what a worker does.
        let file = root.path().join(name).join("1/model.onnx");
        let tried = try_file(&*engine, &file, &Config::default()).map_err(|error| error.to_string());
        let loaded = served.worker.model_config(&ModelRef::latest(name)).map_err(|error| error.to_string());
        for outcome in [tried, loaded.map(drop)] {
            match (outcome, reason) {
                (Ok(()), None) => {}
                (Err(error), Some(reason)) if error.contains(reason) => {
                    assert!(error.contains("wrong parm_mask in config.pbtxt"), "{error}");
                }
                (outcome, _) => panic!("{name}: {outcome:?}"),
            }
        }
    }
}
