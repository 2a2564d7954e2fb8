//! Tests workers that are agents of another server.

use tempfile::TempDir;

use crate::support::process::command;
use crate::support::upstream::{Upstream, say};
use crate::support::{Parm, affine, http};

const OFTEN: [&str; 2] = ["--set", "backend.reload_ms=50"];

fn agent(upstream: &str) -> Parm {
    Parm::listening(&[&["worker", "--instances", "1", "--upstream", upstream], &OFTEN[..]].concat())
}

/// Requests a prediction and returns the status. Panics if the answer is wrong.
fn ask(parm: &Parm) -> u16 {
    let rows = affine::rows(2, 3);
    let body =
        serde_json::json!({"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": rows}]});
    let answer = http::post(parm.http, "/v2/models/affine/infer", body.to_string().as_bytes());
    if answer.status == 200 {
        let found: Vec<f32> = serde_json::from_value(answer.json()["outputs"][0]["data"].clone()).unwrap();
        assert_eq!(found, affine::expected(&rows));
    }
    answer.status
}

#[test]
fn agent_answers_like_its_server_and_grants_tokens() {
    let server = Parm::worker(&[]);
    for url in [format!("http://{}", server.http), format!("grpc://{}", server.grpc)] {
        let agent = agent(&url);
        agent.until_model_ready();
        let frontend = Parm::frontend(&[&agent], &[]);
        (0..20).for_each(|_| assert_eq!(ask(&frontend), 200, "{url}: {}", agent.log()));
        assert_eq!(agent.metric("parm_sharing_frontends", &[]), 1.0, "{url}");
        let [said, known] = [&server, &agent].map(|parm| http::get(parm.http, "/v2/models/affine").json());
        assert_eq!(said, known, "{url}");
        let config = http::get(agent.http, "/v2/models/affine/config").json();
        assert!(
            config["parameters"].to_string().contains("parm_run_us"),
            "the run time is measured: {config}"
        );
    }
}

#[test]
fn concurrent_requests_are_answered_by_tasks_and_by_threads() {
    let server = Parm::worker(&[]);
    let upstream = format!("http://{}", server.http);
    for kind in [&[][..], &["--set", "backend.batching.max_batch=8"], &["--set", "backend.faults=true"]] {
        let arguments =
            [&["worker", "--instances", "3", "--upstream", &*upstream][..], &OFTEN, kind].concat();
        let agent = Parm::listening(&arguments);
        agent.until_model_ready();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    (0..25).for_each(|_| assert_eq!(ask(&agent), 200, "{kind:?}: {}", agent.log()))
                });
            }
        });
    }
}

/// A server of one model that returns a row of one number.
fn one_number() -> Upstream {
    let tensor = |name: &str| format!(r#"[{{"name":"{name}","datatype":"FP32","shape":[-1,1]}}]"#);
    let described = format!(
        r#"{{"name":"affine","versions":["1"],"platform":"python","inputs":{},"outputs":{}}}"#,
        tensor("x"),
        tensor("y")
    );
    let answer =
        r#"{"model_name":"affine","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[7]}]}"#;
    Upstream::start(move |heard, stream| match heard.path() {
        path if path.ends_with("/infer") => say(stream, "200 OK", answer),
        path if path.ends_with("/config") => say(stream, "404 Not Found", "{}"),
        path if path.starts_with("/v2/models/affine") => say(stream, "200 OK", &described),
        "/v2/repository/index" => {
            say(stream, "200 OK", r#"[{"name":"affine","version":"1","state":"READY"}]"#)
        }
        _ => say(stream, "404 Not Found", "{}"),
    })
}

#[test]
fn agent_passes_on_parameters_and_the_time_left() {
    for kind in [&[][..], &["--set", "backend.batching.max_batch=8"]] {
        let server = one_number();
        let url = server.url();
        let agent = Parm::listening(&[&["worker", "--upstream", &*url][..], &OFTEN, kind].concat());
        agent.until_model_ready();
        let body = serde_json::json!({
            "parameters": {"tenant": "a", "priority": 3, "timeout": 9_000_000},
            "inputs": [{
                "name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1], "parameters": {"content_type": "np"}
            }],
        });
        let answer = http::post(agent.http, "/v2/models/affine/infer", body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{kind:?}: {}", answer.body_text());
        let heard = server.heard();
        let request = heard.iter().rfind(|heard| heard.path().ends_with("/infer")).unwrap();
        let length: usize = request.header("inference-header-content-length").unwrap().parse().unwrap();
        let request: serde_json::Value = serde_json::from_slice(&request.body[..length]).unwrap();
        let parameters = &request["parameters"];
        assert_eq!(
            (&parameters["tenant"], parameters.get("priority")),
            (&"a".into(), None),
            "{kind:?}: {request}"
        );
        let timeout = parameters["timeout"].as_u64().unwrap();
        assert!((1..=9_000_000).contains(&timeout), "{kind:?}: {request}");
        assert_eq!(request["inputs"][0]["parameters"]["content_type"], "np", "{kind:?}: {request}");
    }
}

#[test]
fn agent_follows_loaded_and_unloaded_models() {
    let server = Parm::worker(&[]);
    let agent = agent(&format!("http://{}", server.http));
    agent.until_model_ready();
    assert_eq!(http::post(server.http, "/v2/repository/models/affine/unload", b"").status, 200);
    agent.until("the model is gone", |agent| ask(agent) == 404);
    assert_eq!(http::get(agent.http, "/v2/health/ready").status, 503);
    let load = "/v2/repository/models/affine/load";
    for name in ["config", "file:1/model.onnx"] {
        let body = format!(r#"{{"parameters": {{"{name}": "e30="}}}}"#);
        let refused = http::post(server.http, load, body.as_bytes());
        assert_eq!(
            (refused.status, refused.body_text().contains(name)),
            (400, true),
            "{}",
            refused.body_text()
        );
    }
    assert_eq!(http::post(server.http, load, br#"{"parameters": {}}"#).status, 200);
    agent.until("the model is back", |agent| ask(agent) == 200);
}

#[test]
fn agent_serves_only_while_its_server_runs() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("server.sock");
    let path = socket.to_str().unwrap();
    let agent = agent(&format!("unix:{path}"));
    agent.until("the agent waits", |agent| agent.log().contains("waiting for it"));
    assert_eq!(http::get(agent.http, "/v2/health/live").status, 200);
    assert_eq!(http::get(agent.http, "/v2/health/ready").status, 503);
    let server = Parm::worker(&["--unix", path]);
    agent.until("its model is served", |agent| ask(agent) == 200);
    drop(server);
    agent.until("its model is out of service", |agent| {
        http::get(agent.http, "/v2/health/ready").status == 503
    });
    assert!(agent.log().contains("out of service"), "{}", agent.log());
    let _again = Parm::worker(&["--unix", path]);
    agent.until("its model is back", |agent| ask(agent) == 200);
}

#[test]
fn agent_rejects_models_of_its_own() {
    let emulated = "backend.emulated.m={}";
    for (more, code, word) in
        [(&["--set", emulated][..], 64, "omit emulated"), (&["--models", "tests/models"][..], 2, "--models")]
    {
        let mut parm = command();
        parm.args(["worker", "--upstream", "http://127.0.0.1:1"]).args(more);
        let output = parm.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
