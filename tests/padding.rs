//! Requests of unequal lengths that share batches of an encoder with a mask.

use std::fs;
use std::path::Path;
use std::thread;

use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Tensor, Value};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Parm, http};

const WIDTH: usize = 4;

/// Writes an encoder of token ids: a vector for each token, and the mean of those that the mask shows.
fn write(root: &Path) {
    let mut graph = Builder::new("encoder", 1);
    let shape = |width: Option<usize>| {
        let open = ["batch", "length"].map(|name| Dim::Symbol(name.into()));
        Some(open.into_iter().chain(width.map(Dim::Fixed)).collect())
    };
    let [ids, mask] = ["input_ids", "attention_mask"]
        .map(|name| graph.input(Value { name: name.into(), datatype: DataType::Int64, shape: shape(None) }));
    let table = graph.random("table").normals(8 * WIDTH);
    let table = graph.constant(Tensor::from_f32("words", &[8, WIDTH], &table).unwrap());
    let two = graph.constant(Tensor::from_i64("two", &[1], &[2]).unwrap());
    let one = graph.constant(Tensor::from_i64("one", &[1], &[1]).unwrap());
    let tokens = graph.node("Gather", "tokens", &[&table, &ids]);
    let seen = graph.node_with("Cast", "seen", &[&mask], [("to", Attribute::Int(1))]);
    let seen = graph.node("Unsqueeze", "column", &[&seen, &two]);
    let shown = graph.node("Mul", "shown", &[&tokens, &seen]);
    let sum = graph.node_with("ReduceSum", "sum", &[&shown, &one], [("keepdims", Attribute::Int(0))]);
    let count = graph.node_with("ReduceSum", "count", &[&seen, &one], [("keepdims", Attribute::Int(0))]);
    let mean = graph.node("Div", "mean", &[&sum, &count]);
    graph.output(Value { name: tokens, datatype: DataType::Float, shape: shape(Some(WIDTH)) });
    graph.output(Value::batch_of_f32(&mean, &[WIDTH]));
    let folder = root.join("encoder/1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
}

/// The outputs of a request of rows of this length, as shapes and values.
fn ask(parm: &Parm, rows: usize, length: usize) -> Vec<(Vec<u64>, Vec<f64>)> {
    let ids: Vec<usize> = (0..rows * length).map(|at| 1 + (at + length) % 7).collect();
    let input = |name: &str, data: &[usize]| json!({"name": name, "datatype": "INT64", "shape": [rows, length], "data": data});
    let inputs = [input("input_ids", &ids), input("attention_mask", &vec![1; ids.len()])];
    let body = json!({ "inputs": inputs }).to_string();
    let answer = http::post(parm.http, "/v2/models/encoder/infer", body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    let answer = answer.json();
    let outputs = answer["outputs"].as_array().unwrap().iter();
    let read = |output: &serde_json::Value| {
        let shape = output["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect();
        let data = output["data"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        (shape, data)
    };
    outputs.map(read).collect()
}

#[test]
fn requests_of_unequal_lengths_share_batches_and_answers_stay() {
    let folder = TempDir::new().unwrap();
    write(folder.path());
    let models = folder.path().to_str().unwrap();
    let worker = Parm::start(&["worker", "--models", models, "--instances", "1", "--engine", "tract"]);
    let patient = ["--policy", "none", "--set", "frontend.dispatch.no_instance_grace_ms=60000"];
    let parm = Parm::frontend(&[&worker], &patient);
    parm.until("the model is served", |parm| http::get(parm.http, "/v2/models/encoder/ready").status == 200);
    // Similar lengths: little padding is allowed. So many that some wait.
    let requests: Vec<(usize, usize)> = (0..96).map(|at| (1 + at % 2, 30 + at % 4)).collect();
    let alone: Vec<_> = requests.iter().map(|(rows, length)| ask(&parm, *rows, *length)).collect();
    let executions = || parm.metric("nv_inference_exec_count", &[]);
    let before = executions();
    let rows: usize = requests.iter().map(|(rows, _)| rows).sum();
    // They wait for the stopped worker.
    worker.signal("STOP");
    thread::scope(|scope| {
        let asked: Vec<_> =
            requests.iter().map(|(rows, length)| scope.spawn(|| ask(&parm, *rows, *length))).collect();
        parm.until("most rows wait", |parm| {
            parm.metric("nv_inference_pending_request_count", &[]) >= rows as f64 / 2.0
        });
        worker.signal("CONT");
        for ((asked, alone), (rows, length)) in asked.into_iter().zip(&alone).zip(&requests) {
            let answer = asked.join().unwrap();
            assert_eq!(answer[0].0, [*rows as u64, *length as u64, WIDTH as u64], "cut back");
            for (one, other) in answer.iter().zip(alone) {
                assert_eq!(one.0, other.0);
                let differs = |(one, other): (&f64, &f64)| (one - other).abs() > 1e-5;
                assert!(!one.1.iter().zip(&other.1).any(differs), "{one:?} and {other:?}");
            }
        }
    });
    let runs = executions() - before;
    assert!(runs < rows as f64, "no lengths shared a batch: {runs} runs");
}
