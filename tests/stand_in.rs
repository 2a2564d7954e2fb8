//! Tests stand-ins with real processes. Two emulated models compute the same, one of them in a quarter of the time.

use std::time::Instant;

use parm_protocol::client::CallContext;
use parm_protocol::{InferRequest, InferResponse, ModelRef, NamedTensor, Parameters, Tensor};
use tempfile::TempDir;

use crate::support::load::connect;
use crate::support::process::{PATIENCE, configuration, refused};
use crate::support::{Parm, http};

/// Two models with one signature.
const MODELS: &str = r#"
[backend.emulated.big]
input = [4]
outputs = 2
time_ms = { kind = "constant", value = 20.0 }

[backend.emulated.small]
input = [4]
outputs = 2
time_ms = { kind = "constant", value = 5.0 }
"#;

fn models() -> (TempDir, String) {
    configuration(MODELS)
}

/// A query of `big`: its outputs are sums of every other value.
fn request(values: [f32; 4]) -> InferRequest {
    InferRequest {
        model: ModelRef::latest("big"),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("input", Tensor::from_f32([1, 4].as_slice(), &values).unwrap())],
        outputs: Vec::new(),
    }
}

fn outcome(response: &InferResponse) -> &str {
    response.parameters["parm_outcome"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stand_ins_answer_when_a_worker_is_stopped() {
    let (_folder, config) = models();
    let start = || Parm::start(&["worker", "--config", &config, "--instances", "1"]);
    let workers: Vec<Parm> = (0..3).map(|_| start()).collect();
    let arguments = ["--stand-in", "small", "--set", "frontend.dispatch.stand_in.bound=1.0"];
    let frontend = Parm::frontend(&workers.iter().collect::<Vec<_>>(), &arguments);
    frontend.until("all instances joined", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == 3.0);
    for url in [format!("http://{}", frontend.http), format!("grpc://{}", frontend.grpc)] {
        let through = connect(&url);
        workers[0].signal("STOP");
        let deadline = Instant::now() + PATIENCE;
        let (mut given, mut asked) = (0, 0);
        while given == 0 {
            assert!(Instant::now() < deadline, "no stand-in answered");
            asked += 1;
            if asked % 20 == 0 {
                // The worker was ejected before a query was sent to it: try again.
                workers[0].signal("CONT");
                frontend.until("all instances are back", |parm| {
                    parm.metric("parm_instances", &["state=\"ready\""]) == 3.0
                });
                workers[0].signal("STOP");
            }
            let response = through.infer(request([1., 2., 3., 4.]), CallContext::default()).await.unwrap();
            assert_eq!(response.outputs[0].tensor.as_f32().unwrap().as_ref(), [4., 6.], "{response:?}");
            given += usize::from(outcome(&response) == "stand-in");
        }
        workers[0].signal("CONT");
        frontend.until("it works again", |parm| parm.metric("parm_jobs_running", &[]) == 0.0);
    }
    assert!(frontend.metric("parm_stand_ins_total", &["event=\"served\""]) >= 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stand_in_at_the_frontend_answers_when_all_workers_die() {
    let (folder, config) = models();
    let sockets = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let start = |socket: &String| {
        let only = r#"backend.load=["big"]"#;
        Parm::start(&["worker", "--config", &config, "--set", only, "--instances", "1", "--unix", socket])
    };
    let mut workers = sockets.each_ref().map(start);
    let urls = sockets.each_ref().map(|socket| format!("unix:{socket}"));
    let [one, other] = &urls;
    let placed = ["--stand-in", "small", "--stand-in-at", "frontend"];
    let retries = ["--set", "frontend.dispatch.no_instance_grace_ms=100"];
    let ways = ["serve", "--config", &config, "--worker", one, "--worker", other];
    let frontend = Parm::start(&[&ways[..], &placed, &retries].concat());
    frontend.until("all instances joined", |parm| parm.metric("parm_instances", &["state=\"ready\""]) == 3.0);
    let through = connect(&format!("http://{}", frontend.http));
    let values = [1.0, 2.0, 3.0, 4.0];
    let answer = through.infer(request(values), CallContext::default()).await.unwrap();
    assert_eq!(outcome(&answer), "exact");
    workers.iter().for_each(|worker| worker.signal("KILL"));
    for _ in 0..200 {
        let answer = through.infer(request(values), CallContext::default()).await.unwrap();
        assert_eq!(outcome(&answer), "stand-in");
    }
    assert_eq!(http::get(frontend.http, "/v2/models/big/ready").status, 200);
    let exact = r#"{"parameters": {"parm_accept": "exact"}, "inputs": [{"name": "input", "shape": [1, 4],
        "datatype": "FP32", "data": [1, 2, 3, 4]}]}"#;
    let refused = http::post(frontend.http, "/v2/models/big/infer", exact.as_bytes());
    assert!(refused.status == 503 && refused.header("retry-after").is_some(), "{}", refused.body_text());
    assert!(frontend.metric("parm_stand_ins_total", &["model=\"big\"", "event=\"outage\""]) > 100.0);
    assert_eq!(frontend.metric("parm_stand_ins_in_outage", &["model=\"big\""]), 1.0);
    frontend.until("the log says so", |parm| {
        parm.log().contains("no instance serves 'big': its stand-in answers")
    });
    workers = sockets.each_ref().map(start);
    frontend.until("the outage is over", |parm| {
        parm.metric("parm_stand_ins_in_outage", &["model=\"big\""]) == 0.0
    });
    let answer = through.infer(request(values), CallContext::default()).await.unwrap();
    assert_eq!(outcome(&answer), "exact");
    drop(workers);
}

#[test]
fn stand_in_at_the_frontend_needs_workers_and_models() {
    let (_folder, config) = models();
    for (words, wanted) in [
        (vec!["--config", &config, "--stand-in", "small"], "name them with --worker URL"),
        (vec!["--worker", "http://127.0.0.1:1"], "name its repository with --models FOLDER"),
        (vec!["--worker", "http://127.0.0.1:1", "--config", &config], "no bundle names a stand-in"),
        (vec!["--worker", "http://127.0.0.1:1", "--policy", "hedge"], "leave out the policy"),
    ] {
        refused(&[&["serve", "--stand-in-at", "frontend"], &words[..]].concat(), Some(64), wanted);
    }
}
