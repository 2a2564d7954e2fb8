//! Tests of a first day with parm: own models, files that load but cannot run, signals, outages, other servers.

use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use parm_parity_models::onnx::{Attribute, Builder, DataType, Dense, Dim, Tensor, Value};
use tempfile::TempDir;

use crate::support::files::model;
use crate::support::process::{command, refused, told};
use crate::support::upstream::{Upstream, say};
use crate::support::{Parm, http};

/// Flags of a server that takes no port of others.
const FREE: [&str; 6] = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];

/// A softmax over the rows of a request, whose first dimension looks like a batch.
fn write_softmax(root: &Path) {
    let mut graph = Builder::new("soft", 1);
    let input = graph.input(Value::batch_of_f32("x", &[4]));
    let output = graph.node_with("Softmax", "y", &[&input], [("axis", Attribute::Int(0))]);
    let shape = Some(vec![Dim::Symbol("batch".into()), Dim::Fixed(4)]);
    graph.output(Value { name: output, datatype: DataType::Float, shape });
    model(root, "soft", graph.build().unwrap().bytes());
}

/// A linear model of this many inputs, in the folder of a version.
fn write_dense(folder: &Path, inputs: usize, seed: u64) {
    let mut graph = Builder::new("m", seed);
    let x = graph.input(Value::batch_of_f32("x", &[inputs]));
    let y = graph.dense("y", &x, Dense { inputs, outputs: 2 }).unwrap();
    graph.output(Value::batch_of_f32(&y, &[2]));
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("model.onnx"), graph.build().unwrap().bytes()).unwrap();
}

#[test]
fn frontend_warns_when_workers_have_other_files_of_a_version() {
    let folders: Vec<TempDir> = (0..2).map(|_| TempDir::new().unwrap()).collect();
    for (seed, folder) in folders.iter().enumerate() {
        write_dense(&folder.path().join("m/1"), 2, seed as u64);
    }
    let start = |folder: &TempDir| {
        Parm::start(&["worker", "--models", folder.path().to_str().unwrap(), "--instances", "1"])
    };
    let workers: Vec<Parm> = folders.iter().map(start).collect();
    let same = Parm::frontend(&[&workers[0]], &[]);
    let mixed = Parm::frontend(&[&workers[0], &workers[1]], &[]);
    let warning = "version 1 of m is another file than at";
    mixed.until("the log warns", |parm| parm.log().contains(warning));
    assert!(!same.log().contains(warning), "{}", same.log());
}

#[test]
fn default_version_with_other_inputs_is_a_warning() {
    let folder = TempDir::new().unwrap();
    let put = |version: u32, inputs: usize| {
        let aside = folder.path().join(".new");
        write_dense(&aside, inputs, version.into());
        fs::create_dir_all(folder.path().join("m")).unwrap();
        fs::rename(aside, folder.path().join(format!("m/{version}"))).unwrap();
    };
    put(1, 2);
    let models = folder.path().to_str().unwrap();
    let parm = Parm::start(&["serve", "--models", models, "--instances", "1"]);
    put(2, 3);
    let warning = "inputs x FP32[-1, 2] became x FP32[-1, 3]: change its clients";
    parm.until("the log warns", |parm| {
        parm.log().lines().any(|line| line.contains("WARN") && line.contains(warning))
    });
    put(3, 3);
    parm.until("the next version serves", |parm| parm.log().contains("default version changed"));
    assert_eq!(parm.log().matches("a model of another form").count(), 1, "{}", parm.log());
}

#[test]
fn folder_without_models_is_reported_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().to_str().unwrap();
    let serve = || Parm::listening(&["worker", "--models", root]);
    let log = |parm: &Parm, said: &str| parm.until(said, |parm| parm.log().contains(said));
    log(&serve(), "no model to serve");
    fs::write(folder.path().join("my.onnx"), b"").unwrap();
    let cure = format!("mkdir -p {root}/my/1 && cp {root}/my.onnx {root}/my/1/model.onnx");
    log(&serve(), &cure);
    let file = format!("{root}/my.onnx");
    for words in [&["serve", &file][..], &["serve", "--models", &file], &["worker", "--models", &file]] {
        refused(&[words, &FREE].concat(), None, "it is a file: mkdir -p models/my/1 && cp");
    }
    refused(&["models", "list", "--models", root], None, &cure);
    let missing = refused(&["serve", "--models", "no-such-folder"], None, "'no-such-folder'");
    assert!(missing.contains("PARM-0004"), "{missing}");
}

#[test]
fn loose_file_next_to_models_is_reported_everywhere() {
    let folder = TempDir::new().unwrap();
    write_softmax(folder.path());
    fs::write(folder.path().join("my.onnx"), b"").unwrap();
    let root = folder.path().to_str().unwrap();
    let said = format!("{root}/my.onnx is not in a model's folder, so not served: mkdir -p {root}/my/1");
    let worker = Parm::start(&["worker", "--models", root, "--instances", "1"]);
    assert!(worker.log().contains(&said), "{}", worker.log());
    for words in [&["models", "list"][..], &["models", "inspect", "soft"]] {
        let (status, told) = told(&[words, &["--models", root]].concat());
        assert!(status == Some(0) && told.contains(&said), "{words:?}: {told}");
    }
    let config = folder.path().join("config.toml");
    fs::write(&config, format!("[backend]\nmodels = \"{root}\"\n")).unwrap();
    let (_, checked) = told(&["doctor", config.to_str().unwrap()]);
    assert!(checked.contains(&format!("note models: {said}")), "{checked}");
}

#[test]
fn server_that_must_load_all_ends_when_a_model_does_not_load() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("broken/1")).unwrap();
    fs::write(folder.path().join("broken/1/model.onnx"), [0xff; 64]).unwrap();
    let models = folder.path().to_str().unwrap();
    for kind in ["serve", "worker"] {
        let serve = [&[kind, "--models", models, "--exit-on-error"][..], &FREE].concat();
        let said = refused(&serve, None, "model 'broken' is not loaded");
        assert!(said.contains("PARM-0007"), "{kind}: {said}");
    }
}

#[test]
fn sighup_reads_the_configuration_again_and_ends_nothing() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("parm.toml");
    fs::write(&config, "").unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--instances", "2", "--admin", "127.0.0.1:0"];
    let parm = Parm::serve(&flags);
    let until = |said: &str| parm.until(said, |parm| parm.log().contains(said));
    fs::write(&config, "[frontend.dispatch]\nqueue_limit = 77\n[server]\nmax_body_bytes = 4096\n").unwrap();
    parm.signal("HUP");
    until("these changes need a restart");
    assert!(
        parm.log().contains("server.max_body_bytes") && parm.log().contains("frontend.dispatch.queue_limit")
    );
    let settings = http::get(parm.admin.unwrap(), "/admin/v1/settings").json();
    assert_eq!(settings["dispatch"]["queue_limit"], 77);
    fs::write(&config, "[frontend.dispatch]\nqueue_limt = 5\n").unwrap();
    parm.signal("HUP");
    until("the configuration is invalid: nothing changed");
    let worker = Parm::worker(&[]);
    worker.signal("HUP");
    worker.until("it says so", |worker| worker.log().contains("SIGHUP: ignored"));
    for alive in [&parm, &worker] {
        assert_eq!(http::get(alive.http, "/v2/health/ready").status, 200);
    }
}

#[test]
fn sighup_adds_and_removes_servers() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("parm.toml");
    let servers = [Upstream::saying("a"), Upstream::saying("b")].map(|server| (server.url(), server));
    let write =
        |urls: &[&String]| fs::write(&config, format!("frontend.upstreams.urls = {urls:?}\n")).unwrap();
    write(&[&servers[0].0]);
    let parm = Parm::start(&["serve", "--config", config.to_str().unwrap()]);
    let ready =
        |count: f64| parm.until("ready", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == count);
    ready(1.0);
    for (listed, count) in [(&[0, 1][..], 2.0), (&[1][..], 1.0)] {
        write(&listed.iter().map(|at| &servers[*at].0).collect::<Vec<_>>());
        parm.signal("HUP");
        ready(count);
    }
    write(&[&servers[1].0, &"dns+http://localhost:1".to_owned()]);
    parm.signal("HUP");
    parm.until("it says so", |parm| parm.log().contains("need a restart"));
    assert!(!parm.log().contains("nothing changed"), "{}", parm.log());
    ready(1.0);
}

#[test]
fn sighup_changes_nothing_when_the_configuration_is_a_pipe() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("parm.toml");
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let text = "[frontend.dispatch]\nqueue_limit = 77\n";
    let parm = thread::scope(|scope| {
        // It waits for the reader.
        scope.spawn(|| fs::write(&config, text).unwrap());
        Parm::serve(&["--config", config.to_str().unwrap(), "--admin", "127.0.0.1:0"])
    });
    let limit =
        || http::get(parm.admin.unwrap(), "/admin/v1/settings").json()["dispatch"]["queue_limit"].clone();
    assert_eq!(limit(), 77);
    parm.signal("HUP");
    parm.until("it says so", |parm| parm.log().contains("came from a pipe"));
    assert_eq!(limit(), 77);
}

#[test]
fn outage_is_one_error_and_its_end_one_line() {
    let worker = Parm::worker(&[]);
    let parm = Parm::frontend(&[&worker], &["--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    let url = format!("http://{}", parm.admin.unwrap());
    let ctl = |words: &[&str]| told(&[&["ctl"], words, &["--url", &url]].concat()).1;
    let address = worker.http.to_string();
    assert!(ctl(&["drain", &address]).contains("no other instance serves 'affine'"));
    worker.signal("KILL");
    let until = |said: &str| parm.until(said, |parm| parm.log().contains(said));
    until("instance lost");
    until("no instance serves 'affine': every request fails");
    let other = Parm::worker(&[]);
    assert!(ctl(&["add", &format!("http://{}", other.http)]).contains("added instance"));
    until("'affine' is served again");
    assert!(ctl(&["remove", &address]).contains("is removed"));
    let events = ctl(&["events"]);
    assert!(events.contains("no instance serves affine") && events.contains("is served again"), "{events}");
    assert_eq!(parm.log().matches("ERROR").count(), 1, "{}", parm.log());
}

#[test]
fn scrape_at_the_address_of_clients_names_the_other() {
    let worker = Parm::worker(&[]);
    let answer = http::get(worker.http, "/metrics");
    assert_eq!(answer.status, 404);
    assert!(answer.body_text().contains("--metrics"), "{}", answer.body_text());
}

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
