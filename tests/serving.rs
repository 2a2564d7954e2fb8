//! Tests serving over HTTP and gRPC: embedded, as a worker, and through a frontend with workers.

use parm_protocol::client::CallContext;
use parm_protocol::{Code, ModelRef};
use serde_json::json;

use crate::support::load::connect;
use crate::support::{Parm, affine, http};

const INFER: &str = "/v2/models/affine/infer";

fn answers_json(parm: &Parm) {
    let rows = affine::rows(3, 11);
    let mut body = affine::json(&rows);
    body["id"] = json!("q1");
    let answer = http::post(parm.http, INFER, body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    let json = answer.json();
    assert_eq!((&json["id"], &json["model_name"]), (&json!("q1"), &json!("affine")));
    assert_eq!(json["outputs"][0]["shape"], json!([3, 2]));
    let got: Vec<f64> =
        json["outputs"][0]["data"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let want = affine::expected(&rows);
    assert!(
        got.iter().zip(&want).all(|(got, want)| (got - f64::from(*want)).abs() < 1e-3),
        "{got:?} {want:?}"
    );
}

async fn answers_every_client(parm: &Parm) {
    parm.until_model_ready();
    answers_json(parm);
    for url in [format!("http://{}", parm.http), format!("grpc://{}", parm.grpc)] {
        let client = connect(&url);
        assert!(client.is_ready().await.unwrap());
        let metadata = client.model_metadata(&ModelRef::latest("affine")).await.unwrap();
        assert_eq!((metadata.name.as_str(), metadata.inputs[0].name.as_str()), ("affine", "x"));
        assert_eq!(metadata.inputs[0].shape, [-1, 4]);
        for count in [1, 2, 5] {
            let rows = affine::rows(count, 5);
            let response = client.infer(affine::request(&rows), CallContext::default()).await.unwrap();
            assert!(affine::is_answer(&response, &rows), "{url}: {response:?}");
        }
        let mut unknown = affine::request(&affine::rows(1, 1));
        unknown.model.name = "nothing".into();
        let error = client.infer(unknown, CallContext::default()).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{error}");
    }
}

#[tokio::test]
async fn workers_and_the_frontend_over_them_serve() {
    let workers = [Parm::worker(&[]), Parm::worker(&[])];
    answers_every_client(&workers[0]).await;
    let urls = [format!("http://{}", workers[0].http), format!("grpc://{}", workers[1].grpc)];
    let parm = Parm::start(&["serve", "--worker", &urls[0], "--worker", &urls[1]]);
    answers_every_client(&parm).await;
    assert!(parm.metric("nv_inference_request_success", &["model=\"affine\""]) >= 7.0);
}

#[tokio::test]
async fn a_worker_on_a_unix_socket_serves_a_frontend() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("worker.sock");
    let _worker = Parm::worker(&["--unix", socket.to_str().unwrap()]);
    let parm = Parm::start(&["serve", "--worker", &format!("unix:{}", socket.display())]);
    answers_every_client(&parm).await;
}

#[tokio::test]
async fn embedded_instances_answer_at_every_documented_path() {
    let parm = Parm::serve(&["--instances", "2"]);
    answers_every_client(&parm).await;
    let answer = affine::infer(parm.http, &affine::rows(1, 2));
    assert_eq!(answer.header("parm-outcome").as_deref(), Some("exact"));
    assert_eq!(answer.json()["parameters"]["parm_outcome"], json!("exact"));
    let document = http::get(parm.http, "/v2/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v2/models/{model}/infer"), "{:?}", paths.keys().collect::<Vec<_>>());
    for path in [
        "/v2",
        "/v2/models",
        "/v2/models/affine",
        "/v2/models/affine/config",
        "/v2/models/affine/stats",
        "/v2/models/stats",
        "/v2/models/affine/versions/1",
        "/v2/health/live",
        "/v2/health/ready",
    ] {
        assert_eq!(http::get(parm.http, path).status, 200, "{path}");
    }
    let index = http::post(parm.http, "/v2/repository/index", b"{}").json();
    assert_eq!(index[0]["name"], json!("affine"));
    let lost = http::get(parm.http, "/v3/nothing");
    assert_eq!(lost.status, 404);
    assert!(lost.json()["error"].as_str().unwrap().contains("/v3/nothing"));
}
