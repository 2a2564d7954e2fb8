//! Tests `parm doctor` on configurations, model repositories, running frontends, recordings and codes.

use std::fs;
use std::net::TcpListener;

use tempfile::TempDir;

use crate::support::process::{command, configuration, root};
use crate::support::{Parm, api_server, http};

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
