//! Tests `parm doctor` on configurations, model repositories, running frontends, recordings and codes.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;

use parm_workload::Random;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::{command, configuration, refused, root, text};
use crate::support::{Parm, affine, api_server, http};

/// Runs `parm doctor`: whether all is well, and its output.
pub fn doctor(what: impl AsRef<std::ffi::OsStr>) -> (bool, String) {
    let output = command().arg("doctor").arg(what).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The findings about a frontend's admin API.
pub fn of_frontend(parm: &Parm) -> (bool, String) {
    doctor(format!("http://{}", parm.admin.unwrap()))
}

/// Ports that are free.
pub const FREE: &str =
    "[server]\nhttp = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n";

/// The findings about a configuration with this text.
pub fn of_configuration(text: &str) -> (bool, String) {
    let (_folder, file) = configuration(text);
    doctor(file)
}

/// Asserts that the output has each of these lines.
fn assert_has(said: &str, lines: &[&str]) {
    for line in lines {
        assert!(said.contains(line), "{line:?} is missing in\n{said}");
    }
}

fn test_models() -> String {
    format!("[backend]\nengine.name = \"tract\"\nmodels = {:?}\n", root().join("tests/models"))
}

#[test]
fn running_frontend_and_its_configuration_are_checked() {
    let worker = Parm::worker(&[]);
    let parm = Parm::frontend(&[&worker], &["--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    let (is_well, said) = of_frontend(&parm);
    assert!(is_well, "{said}");
    let lines =
        ["ok   admin API: parm", "note model affine: one instance", "ok   instances: 1 of 1 are healthy"];
    assert_has(&said, &lines);
    let (taken, worker) = (parm.http, worker.http);
    let (is_well, said) = of_configuration(&format!(
        "[server]\nhttp = \"{taken}\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n[frontend]\n\
         workers = [\"http://{worker}\", \"http://127.0.0.1:1\"]\n",
    ));
    assert!(!is_well, "{said}");
    let lines = [
        "ok   configuration: ".to_owned(),
        format!("FAIL port: server.http {taken}"),
        "note admin API: off".to_owned(),
        format!("ok   worker http://{worker}: "),
        "FAIL worker http://127.0.0.1:1: ".to_owned(),
    ];
    assert_has(&said, &lines.each_ref().map(String::as_str));
}

#[test]
fn findings_are_printed_as_json() {
    let (_folder, config) = configuration("[frontend]\nwrokers = []\n");
    let json = command().args(["doctor", &config, "--output", "json"]).output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(findings[0]["verdict"], "fail", "{findings}");
}

#[test]
fn model_repository_is_checked() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("good/1")).unwrap();
    fs::create_dir_all(folder.path().join("broken/1")).unwrap();
    let file = root().join("tests/models/affine/1/model.onnx");
    fs::copy(file, folder.path().join("good/1/model.onnx")).unwrap();
    fs::write(folder.path().join("broken/1/model.onnx"), "not a model").unwrap();
    let (is_well, said) = doctor(folder.path());
    assert!(!is_well, "{said}");
    assert_has(&said, &["ok   models: 2 in ", "FAIL model broken: "]);
    assert!(!said.contains("port"), "{said}");
}

#[test]
fn policy_that_serve_rejects_is_reported() {
    let of = |policy: &str| {
        let text = format!("{FREE}{}[frontend.models.affine]\npolicy = \"{policy}\"\n", test_models());
        of_configuration(&text).1
    };
    let said = of("stand-in");
    assert_has(&said, &["FAIL configuration: ", "needs a cheaper model"]);
    assert!(!said.contains("is valid"), "{said}");
    assert_has(&of("none"), &["is valid", "engine: tract"]);
}

#[test]
fn faults_of_settings_that_stop_a_server_are_reported() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = free();
    let one_port =
        format!("[server]\nhttp = \"{address}\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"{address}\"\n");
    let upstream = format!("[frontend.upstreams]\nurls = [\"http://{}\"]\n", free());
    for (text, lines) in [
        (
            one_port + &test_models(),
            vec![
                format!("ok   port: server.http {address} is free"),
                format!("FAIL port: server.metrics {address}: "),
                "server.http has this port\n       give each its own port".into(),
            ],
        ),
        (upstream, vec!["FAIL server http://127.0.0.1:".into(), "correct frontend.upstreams.urls".into()]),
        ("[frontend]\nwrokers = []\n".into(), vec!["FAIL configuration: ".into()]),
        ("[frontend]\nworkers_file = \"nowhere\"\n".into(), vec!["FAIL workers file: nowhere: ".into()]),
    ] {
        let (is_well, said) = of_configuration(&text);
        assert!(!is_well, "{said}");
        assert_has(&said, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn file_without_models_has_its_other_faults_reported() {
    let tls = "[tls]\nmode = \"allow\"\ncertificate = \"absent.crt\"\nkey = \"absent.key\"\n";
    let (folder, config) = configuration(tls);
    // A folder named models in the working directory would be served.
    let output = command().current_dir(folder.path()).args(["doctor", &config]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{said}");
    assert_has(&said, &["no models to serve", "absent.crt"]);
}

/// An EndpointSlice with one pod: this machine and the port of a worker.
fn slice(worker: &Parm) -> String {
    let port = worker.http.port();
    format!(
        r#"{{"metadata": {{"name": "w-{port}", "resourceVersion": "1"}}, "addressType": "IPv4",
        "endpoints": [{{"addresses": ["127.0.0.1"], "conditions": {{}}, "nodeName": null, "zone": "eu-1a"}}],
        "ports": [{{"name": "http", "port": {port}, "protocol": "TCP"}}]}}"#
    )
    .replace('\n', "")
}

#[test]
fn kubernetes_service_is_checked() {
    let worker = Parm::worker(&[]);
    let of = |status: u16, slices: &str| {
        let api = api_server::start(status, slices);
        of_configuration(&format!(
            "[frontend]\nworkers = [\"kubernetes+http://workers.ml:http\"]\nkubernetes.server = \"http://{}\"\n",
            api.address
        ))
        .1
    };
    let found = "ok   workers: kubernetes+http://workers.ml:http: pods found: 1";
    let answers = format!("ok   worker http://127.0.0.1:{}: ", worker.http.port());
    assert_has(&of(200, &slice(&worker)), &[found, &answers]);
    assert_has(&of(200, ""), &["the Service has no pods", "kubectl get endpointslices"]);
    assert_has(&of(403, ""), &["FAIL workers", "bind a Role"]);
}

#[test]
fn model_that_does_not_load_is_named_for_a_running_frontend() {
    let folder = TempDir::new().unwrap();
    for (name, from) in [("good", Some("tests/models/affine/1/model.onnx")), ("broken", None)] {
        let version = folder.path().join(name).join("1");
        fs::create_dir_all(&version).unwrap();
        let bytes = from.map_or(vec![0xff; 64], |from| fs::read(root().join(from)).unwrap());
        fs::write(version.join("model.onnx"), bytes).unwrap();
    }
    let models = folder.path().to_str().unwrap();
    let parm = Parm::start(&["serve", "--models", models, "--instances", "1", "--admin", "127.0.0.1:0"]);
    let answer = http::get(parm.http, "/v2/models/broken");
    assert_eq!(answer.status, 404);
    assert!(
        answer.body_text().contains("model 'broken' is not loaded: cannot load"),
        "{}",
        answer.body_text()
    );
    let (is_well, said) = of_frontend(&parm);
    assert!(!is_well && said.contains("FAIL model broken: not loaded on 1 instances"), "{said}");
}

/// Writes a recording of six instances, of which number 2 is five times slower.
fn recording(folder: &TempDir, queries: u64) -> PathBuf {
    let mut draw = Random::of(7, [0]);
    let mut lines = vec![
        json!({"recording": {"format": 1, "unix_ms": 0}}),
        json!({"model": {"number": 0, "name": "m", "version": "1"}}),
    ];
    let named =
        |number: u64| json!({"instance": {"number": number, "name": format!("http://worker-{number}")}});
    lines.extend((0..6).map(named));
    for number in 0..queries {
        let (at, instance) = (20_000 * (number + 1), number % 6);
        let usual = 18_000.0 + 4_000.0 * draw.uniform();
        let took = if instance == 2 { 5.0 * usual } else { usual } as u64;
        lines.push(json!({"query": {"at_us": at, "model": 0, "rows": 1}}));
        lines.push(json!({"job": {"at_us": at, "took_us": took, "model": 0, "instance": instance, "rows": 1,
                                  "role": "deployed", "ok": true, "arrived_us": at}}));
    }
    let path = folder.path().join("run.jsonl");
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    path
}

fn why(arguments: &[&str]) -> Output {
    command().arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn slow_instance_of_a_recording_is_named_with_its_cost() {
    let folder = TempDir::new().unwrap();
    let file = recording(&folder, 12_000);
    let file = file.to_str().unwrap();
    let output = why(&[file, "--policy", "equal"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("http://worker-2 is 5.0 times slower than the others. Without that p99.9"),
        "{said}"
    );
    assert!(said.contains("recycle it"), "{said}");

    let output = why(&[file, "--policy", "equal", "--output", "json", "--repeats", "1"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &found["suspects"][0];
    assert_eq!(first["cause"], json!({"kind": "slow_instances", "instances": [2]}), "{found}");
    let [whole, without] =
        [&found["replayed"], &first["without"]].map(|tail| tail["p999_ms"].as_f64().unwrap());
    assert!((90.0..120.0).contains(&whole) && (19.0..25.0).contains(&without), "{whole} {without}");
    let recorded = found["recorded"]["p999_ms"].as_f64().unwrap();
    assert!((recorded / whole - 1.0).abs() < 0.1, "{recorded} {whole}");
}

/// Bursts of jobs wait at a worker behind jobs of other frontends: the recording has their times, not the reason.
#[test]
fn no_cause_is_named_when_the_replay_differs_widely() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut lines = vec![
        json!({"recording": {"format": 1, "unix_ms": 0}}),
        json!({"model": {"number": 0, "name": "m", "version": "1"}}),
        json!({"instance": {"number": 0, "name": "http://worker"}}),
    ];
    for number in 0..12_000u64 {
        // Four jobs at a time are at one worker, which the replay gives one at a time.
        let at = 10_000 * number;
        lines.push(json!({"query": {"at_us": at, "model": 0, "rows": 1}}));
        lines.push(
            json!({"job": {"at_us": at, "took_us": 40_000 + number % 7, "model": 0, "instance": 0, "rows": 1,
                                  "role": "deployed", "ok": true, "arrived_us": at}}),
        );
    }
    fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let file = path.to_str().unwrap();
    let output = why(&[file, "--policy", "equal", "--repeats", "1"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("p99.9 is 40.0 ms") && said.contains("No cause is named: the replay"), "{said}");
    assert!(!said.contains("Queries wait for an instance"), "{said}");
    assert!(said.contains("other frontends use the same workers") && said.contains("--config"), "{said}");
    let output = why(&[file, "--policy", "equal", "--repeats", "1", "--output", "json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["reproduced"], &found["suspects"]), (&json!(false), &json!([])), "{found}");
}

#[test]
fn short_recording_gives_p99_and_a_shorter_one_an_error() {
    let folder = TempDir::new().unwrap();
    let file = recording(&folder, 3_000);
    let output = why(&[file.to_str().unwrap(), "--policy", "equal", "--repeats", "1"]);
    let said = text(&output.stdout);
    assert!(said.contains("p99 is ") && said.contains("p99.9 needs 10000 recorded queries"), "{said}");
    let file = recording(&folder, 500);
    for (arguments, word) in [
        (&[file.to_str().unwrap()][..], "needs 1000 and there are 500"),
        (&[file.to_str().unwrap(), "--policy", "hope"], "hedge"),
        (&[file.to_str().unwrap(), "--config", "/no/such/parm.toml"], "/no/such/parm.toml"),
    ] {
        refused(&[&["doctor"], arguments].concat(), Some(64), word);
    }
}

#[test]
fn running_frontend_is_recorded_and_examined() {
    let parm = Parm::serve(&["--instances", "2", "--admin", "127.0.0.1:0"]);
    parm.until_model_ready();
    let url = format!("http://{}", parm.admin.unwrap());
    let mut command = command();
    command.args(["doctor", &url, "--seconds", "2", "--output", "json"]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        assert_eq!(affine::infer(parm.http, &affine::rows(1, 3)).status, 200);
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    if output.status.success() {
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["queries"].as_u64().unwrap() > 0, "{found}");
    } else {
        assert!(output.status.code() == Some(64) && said.contains("needs 1000"), "{said}");
    }
}
