//! Tests the routes of embedding servers with real processes.

use std::fs;

use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Tensor, Value};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::files::model;
use crate::support::process::command;
use crate::support::{Parm, http};

const TOKENIZER: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
    "model": { "type": "WordLevel", "unk_token": "[UNK]", "vocab": { "[UNK]": 0, "red": 1, "green": 2, "blue": 3 } }
}"#;

/// Vectors of unknown words, "red", "green" and "blue".
const VECTORS: [f32; 8] = [1.0, 1.0, 3.0, 4.0, 0.0, 2.0, 5.0, 0.0];

/// Writes an encoder, named `colours`, and a model without texts, named `sums`.
fn models() -> TempDir {
    let folder = TempDir::new().unwrap();
    let mut graph = Builder::new("colours", 1);
    let dims = || Some(["batch", "tokens"].map(|name| Dim::Symbol(name.into())).to_vec());
    let tokens = |name: &str| Value { name: name.into(), datatype: DataType::Int64, shape: dims() };
    let (ids, mask) = (graph.input(tokens("input_ids")), graph.input(tokens("attention_mask")));
    let table = graph.constant(Tensor::from_f32("table", &[4, 2], &VECTORS).unwrap());
    let looked_up = graph.node("Gather", "lookup", &[&table, &ids]);
    let mask = graph.node_with("Cast", "mask", &[&mask], [("to", Attribute::Int(1))]);
    let mask = graph.node_with("Unsqueeze", "wide", &[&mask], [("axes", Attribute::Ints(vec![2]))]);
    let hidden = graph.node("Mul", "last_hidden_state", &[&looked_up, &mask]);
    let shape = dims().map(|dims| [dims, vec![Dim::Fixed(2)]].concat());
    graph.output(Value { name: hidden, datatype: DataType::Float, shape });
    model(folder.path(), "colours", graph.opset(11).build().unwrap().bytes());
    fs::write(folder.path().join("colours/1/tokenizer.json"), TOKENIZER).unwrap();
    let mut sums = Builder::new("sums", 1);
    let input = sums.input(Value::batch_of_f32("x", &[2]));
    let output = sums.node("Add", "y", &[&input, &input]);
    sums.output(Value::batch_of_f32(&output, &[2]));
    model(folder.path(), "sums", sums.build().unwrap().bytes());
    folder
}

fn post(parm: &Parm, path: &str, body: &Json) -> http::Answer {
    http::post(parm.http, path, body.to_string().as_bytes())
}

#[test]
fn embeddings_are_those_of_the_model() {
    let folder = models();
    let root = folder.path().to_str().unwrap();
    let worker = Parm::start(&["worker", "--models", root, "--instances", "1"]);
    let frontend = Parm::frontend(&[&worker], &[]);
    let embedded = Parm::start(&["serve", "--models", root, "--instances", "2"]);
    for parm in [&worker, &frontend, &embedded] {
        parm.until("the model is ready", |parm| {
            http::get(parm.http, "/v2/models/colours/ready").status == 200
        });
        let body = json!({ "model": "colours", "input": ["red", "red green", "pink"] });
        let list = post(parm, "/v1/embeddings", &body).json();
        let vectors = [[0.6, 0.8], [0.44721359, 0.89442719], [0.70710677, 0.70710677]];
        for (at, wanted) in vectors.into_iter().enumerate() {
            let vector: Vec<f64> = serde_json::from_value(list["data"][at]["embedding"].clone()).unwrap();
            let close = vector.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-6);
            assert!(close && list["data"][at]["index"] == at, "{list:#}");
        }
        assert_eq!(list["usage"], json!({ "prompt_tokens": 4, "total_tokens": 4 }));
        let models = http::get(parm.http, "/v1/models").json();
        let listed = &models["data"];
        assert!(listed.as_array().unwrap().len() == 1 && listed[0]["created"].is_u64(), "{models}");
        assert_eq!(
            (&models["object"], &listed[0]["id"], &listed[0]["object"], &listed[0]["owned_by"]),
            (&json!("list"), &json!("colours"), &json!("model"), &json!("parm"))
        );
        let raw = post(parm, "/embed", &json!({ "inputs": "red blue", "normalize": false })).json();
        assert_eq!(raw, json!([[4.0, 2.0]]));
    }
    let answer = post(&frontend, "/v1/embeddings", &json!({ "model": "colours", "input": "red" }));
    assert_eq!(answer.header("parm-outcome").as_deref(), Some("exact"));
}

#[test]
fn requests_that_no_model_can_answer_are_rejected_with_the_cure() {
    let folder = models();
    let parm = Parm::start(&["serve", "--models", folder.path().to_str().unwrap(), "--instances", "1"]);
    parm.until("the model is ready", |parm| http::get(parm.http, "/v2/models/colours/ready").status == 200);
    let embeddings = |model: &str, input: Json| json!({ "model": model, "input": input });
    for (path, body, status, message) in [
        ("/v1/embeddings", embeddings("none", json!("a")), 404, "none"),
        ("/v1/embeddings", embeddings("sums", json!("a")), 400, "needs a model with one input of strings"),
        ("/v1/embeddings", embeddings("colours", json!([1, 4])), 400, "no token ids"),
        ("/v1/embeddings", json!({ "input": "a" }), 400, "missing field `model`"),
        ("/v1/rerank", json!({ "model": "colours", "query": "q", "documents": ["d"] }), 400, "scores pairs"),
        ("/rerank", json!({ "query": "q", "texts": ["d"] }), 400, "no served model can answer this"),
        ("/embed?model=sums", json!({ "inputs": "a" }), 400, "'sums' cannot answer this"),
        ("/embed", json!({ "inputs": [] }), 400, "send at least one"),
    ] {
        let answer = post(&parm, path, &body);
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.body_text());
        let error = &answer.json()["error"];
        let text = if path.starts_with("/v1/") { error["message"].as_str() } else { error.as_str() };
        assert!(text.is_some_and(|text| text.contains(message)), "{path} {body}: {error}");
    }
    let late =
        http::request(parm.http, "POST", "/embed", &[("parm-timeout-ms", "soon")], br#"{"inputs": "a"}"#);
    assert_eq!((late.status, late.body_text().contains("parm-timeout-ms is not a number")), (400, true));
}

/// The output of a search for a stand-in of `colours`, with these lines as its rows.
fn search(lines: &str) -> String {
    let folder = models();
    let (file, runs) = (folder.path().join("lines.txt"), folder.path().join("runs"));
    fs::write(&file, lines).unwrap();
    let data = format!("texts:{}", file.display());
    let words = ["stand-in", "colours", "--data", &data, "--dry-run", "--measure", "1", "--engine", "tract"];
    let own = ["--models", folder.path().to_str().unwrap(), "--runs", runs.to_str().unwrap()];
    let output = command().args(words).args(own).output().unwrap();
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn stand_ins_of_text_models_are_searched_with_texts() {
    let words = ["red", "green", "blue", "pink"];
    let line = |at: usize| [words[at % 4], words[at / 4 % 4], words[at / 16]].join(" ");
    let lines: Vec<String> = (0..64).map(line).collect();
    let told = search(&lines.join("\n"));
    let meaning = "output 'last_hidden_state' is taken for embedding: it is the vector of a text";
    assert!(told.contains(meaning) && told.contains("a constant answer agrees"), "{told}");
    let empty = search("\n\n");
    assert!(empty.contains("has no text: write one in a line"), "{empty}");
}
