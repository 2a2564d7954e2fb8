//! Tests of a first own model: files that load but cannot run, exports without tensors, other servers.

use std::fs;

use parm_parity_models::onnx::{Attribute, Builder, Tensor, Value};
use tempfile::TempDir;

use crate::support::files::model;
use crate::support::process::{command, told};
use crate::support::upstream::{Upstream, say};
use crate::support::{Parm, http};

/// A softmax over four values.
fn softmax() -> Vec<u8> {
    let mut graph = Builder::new("one", 1);
    let input = graph.input(Value::batch_of_f32("x", &[4]));
    let output = graph.node_with("Softmax", "y", &[&input], [("axis", Attribute::Int(1))]);
    graph.output(Value::batch_of_f32(&output, &[4]));
    graph.build().unwrap().bytes().to_vec()
}

/// Loads, and fails every run: it gathers the tenth of four values.
fn never_runs() -> Vec<u8> {
    let mut graph = Builder::new("never", 1);
    let input = graph.input(Value::batch_of_f32("x", &[4]));
    let tenth = graph.constant(Tensor::from_i64("tenth", &[4], &[9; 4]).unwrap());
    let output = graph.node_with("Gather", "y", &[&input, &tenth], [("axis", Attribute::Int(1))]);
    graph.output(Value::batch_of_f32(&output, &[4]));
    graph.build().unwrap().bytes().to_vec()
}

/// A field of a protocol buffer that holds bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let (key, length) = (u32::from(number) << 3 | 2, content.len());
    assert!(key < 128 && length < 128, "one byte each");
    [&[key as u8, length as u8], content].concat()
}

/// A classifier as skl2onnx exports it by default: a map for each row.
fn zip_map() -> Vec<u8> {
    let map = [vec![8, 7], field(2, &field(1, &[8, 1]))].concat();
    let maps = field(4, &field(1, &field(5, &map)));
    let output = [field(1, b"probabilities"), field(2, &maps)].concat();
    let node = [field(1, b"y"), field(2, b"probabilities"), field(4, b"ZipMap"), field(7, b"ai.onnx.ml")];
    let graph = [field(1, &node.concat()), field(12, &output)].concat();
    // Messages that follow each other are merged.
    [softmax(), field(8, &[&field(1, b"ai.onnx.ml")[..], &[16, 1]].concat()), field(7, &graph)].concat()
}

#[test]
fn model_whose_warm_up_fails_is_not_ready_and_says_why() {
    let folder = TempDir::new().unwrap();
    model(folder.path(), "never", &never_runs());
    model(folder.path(), "well", &softmax());
    let models = folder.path().to_str().unwrap();
    let parm = Parm::start(&["serve", "--models", models, "--instances", "1", "--engine", "tract"]);
    parm.until("the log says why", |parm| parm.log().contains("warm-up failed"));
    assert_eq!(http::get(parm.http, "/v2/models/well/ready").status, 200);
    assert_ne!(http::get(parm.http, "/v2/models/never/ready").status, 200);
    let said = http::get(parm.http, "/v2/models/never").body_text();
    assert!(said.contains("'never' is not loaded: warm-up failed"), "{said}");
}

#[test]
fn panic_of_an_engine_is_a_line_of_a_json_log() {
    let folder = TempDir::new().unwrap();
    model(folder.path(), "never", &never_runs());
    model(folder.path(), "well", &softmax());
    let models = folder.path().to_str().unwrap();
    let parm = Parm::start(&["worker", "--models", models, "--engine", "tract", "--log-format", "json"]);
    let log = parm.log();
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line);
    let lines: Vec<_> = log.lines().map(|line| read(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    assert!(lines.iter().any(|line| line["message"] == "panicked"), "{log}");
}

#[test]
fn check_and_inspect_report_a_model_that_never_runs() {
    let folder = TempDir::new().unwrap();
    model(folder.path(), "never", &never_runs());
    let models = folder.path().to_str().unwrap();
    let config = folder.path().join("parm.toml");
    fs::write(&config, format!("[backend]\nmodels = {models:?}\nengine.name = \"tract\"\n")).unwrap();
    let (status, said) = told(&["doctor", config.to_str().unwrap()]);
    assert!(status == Some(1) && said.contains("FAIL model never: warm-up failed"), "{said}");
    assert!(said.contains("PARM-0007"), "{said}");
    let (status, said) = told(&["models", "inspect", "never", "--models", models]);
    assert!(status != Some(0) && said.contains("engine tract: warm-up failed"), "{said}");
    assert!(said.contains("PARM-0007") && !said.contains("thread '"), "{said}");
}

#[test]
fn export_with_maps_is_reported_with_the_cure() {
    let folder = TempDir::new().unwrap();
    model(folder.path(), "maps", &zip_map());
    let models = folder.path().to_str().unwrap();
    let cure = "export the model with options={'zipmap': False}";
    let parm = Parm::listening(&["worker", "--models", models, "--engine", "tract"]);
    parm.until("the log says it", |parm| parm.log().contains(cure));
    let (_, said) = told(&["models", "inspect", "maps", "--models", models]);
    assert!(said.contains("engine tract") && said.contains(cure), "{said}");
}

#[test]
fn mistakes_and_ignored_fields_of_config_pbtxt_are_logged() {
    let folder = TempDir::new().unwrap();
    let config = |name: &str, config: &str| {
        model(folder.path(), name, &softmax());
        fs::write(folder.path().join(name).join("config.pbtxt"), config).unwrap();
    };
    config("soft", "max_batch_size: 8\ninstance_group [{ count: 2 }]\ndynamic_batching { }\n");
    config("wrong", "max_batch_size: many\ndynamic_batching { preferred_batch_size: [ 4 ]\n");
    let parm = Parm::start(&["worker", "--models", folder.path().to_str().unwrap()]);
    let log = parm.log();
    let count =
        |parts: [&str; 3]| log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
    assert_eq!(count(["other fields are ignored", "soft", "instance_group, dynamic_batching"]), 1, "{log}");
    for problem in ["max_batch_size is 'many'", "the file is not complete"] {
        assert_eq!(count(["WARN", problem, "wrong/config.pbtxt"]), 1, "{log}");
    }
    assert_eq!(http::get(parm.http, "/v2/models/soft/config").json()["max_batch_size"], 8);
}

const METADATA: &str = r#"{"name": "toy", "versions": ["1"], "platform": "toy",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]}"#;

/// A server without `POST /v2/repository/index`, an extension of the protocol.
fn without_index() -> Upstream {
    Upstream::start(|heard, stream| match heard.path() {
        "/v2/health/live" | "/v2/health/ready" | "/v2/models/toy/ready" => say(stream, "200 OK", "{}"),
        "/v2" => say(stream, "200 OK", r#"{"name": "toy", "version": "1", "extensions": []}"#),
        "/v2/models/toy" => say(stream, "200 OK", METADATA),
        "/v2/models/toy/infer" => say(
            stream,
            "200 OK",
            r#"{"model_name": "toy", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [2.0]}]}"#,
        ),
        _ => say(stream, "404 Not Found", r#"{"error": "not found"}"#),
    })
}

#[test]
fn server_without_an_index_is_served_once_its_models_are_named() {
    let server = without_index();
    let url = server.url();
    let parm = Parm::listening(&["serve", "--worker", &url]);
    let cure =
        "it does not list its models (POST /v2/repository/index): name them in frontend.instances.models";
    parm.until("the log names the cure", |parm| parm.log().contains(cure));
    let parm = Parm::start(&["serve", "--worker", &url, "--set", "frontend.instances.models=[\"toy\"]"]);
    let body = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}"#;
    let answer = http::post(parm.http, "/v2/models/toy/infer", body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    assert_eq!(answer.json()["outputs"][0]["data"], serde_json::json!([2.0]));
}

#[test]
fn example_of_the_binary_is_served_where_nobody_names_models() {
    let folder = TempDir::new().unwrap();
    let mut parm = Parm::start_in(folder.path(), &["serve", "--policy", "stand-in"]);
    for model in ["magika", "fashion-lenet", "fashion-perceptron"] {
        let answer = http::get(parm.http, &format!("/v2/models/{model}/ready"));
        assert_eq!(answer.status, 200, "{model}: {}", parm.log());
    }
    let told =
        "serving the built-in example; name yours with --models FOLDER, --worker URL or --upstream URL";
    assert!(parm.log().contains(told), "{}", parm.log());
    parm.signal("TERM");
    assert!(parm.wait().success(), "{}", parm.log());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "its files are removed");
}

#[test]
fn own_folder_of_models_replaces_the_example() {
    let folder = TempDir::new().unwrap();
    model(&folder.path().join("models"), "mine", &softmax());
    let parm = Parm::start_in(folder.path(), &["serve"]);
    let status = |model: &str| http::get(parm.http, &format!("/v2/models/{model}/ready")).status;
    assert_eq!([status("mine"), status("magika")], [200, 404], "{}", parm.log());
    assert!(!parm.log().contains("built-in example"), "{}", parm.log());
}

#[test]
fn worker_without_models_is_refused() {
    let folder = TempDir::new().unwrap();
    let output = command().current_dir(folder.path()).arg("worker").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(64) && said.contains("PARM-0004"), "{said}");
}
