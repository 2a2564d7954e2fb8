//! Tests faulty, hostile and numerous clients: other clients are answered.

mod errors;
mod hostile;
mod many;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use parm_protocol::grpc::convert;
use parm_protocol::grpc::inference::ModelInferRequest;
use serde_json::{Value, json};

use crate::support::grpc::Grpc;
use crate::support::process::PATIENCE;
use crate::support::{Parm, affine, http};

const INFER: &str = "/v2/models/affine/infer";
const SLOW_INFER: &str = "/v2/models/slow/infer";

/// A frontend with one embedded instance of the affine model.
fn serve(arguments: &[&str]) -> Parm {
    Parm::serve(&[&["--instances", "1"], arguments].concat())
}

/// A frontend with one embedded instance, and a model `slow` that takes `ms` for each batch.
fn serve_slow(ms: u32, arguments: &[&str]) -> Parm {
    let slow = format!(
        "backend.emulated={{slow={{input=[4],outputs=2,time_ms={{kind=\"constant\",value={ms}.0}}}}}}"
    );
    // Warming up a model this slow would take longer than the test.
    serve(&[&["--set", &slow, "--set", "backend.warm_up_runs=0"], arguments].concat())
}

/// A request for one row of the slow model.
fn slow_body() -> Vec<u8> {
    json!({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
        .to_string()
        .into_bytes()
}

/// A request for one row of the affine model, in JSON.
fn good() -> Value {
    affine::json(&affine::rows(1, 3))
}

/// Asserts that the server answers a good request correctly.
fn assert_serves(parm: &Parm, after: &str) {
    let answer = http::post(parm.http, INFER, good().to_string().as_bytes());
    assert_eq!(answer.status, 200, "after {after}: {}", answer.body_text());
    let got = &answer.json()["outputs"][0]["data"];
    let want = affine::expected(&affine::rows(1, 3));
    for (at, want) in want.iter().enumerate() {
        let got = got[at].as_f64().unwrap();
        assert!((got - f64::from(*want)).abs() < 1e-3, "after {after}: {got} instead of {want}");
    }
}

/// Refused requests so far, by reason.
fn refused(parm: &Parm, reason: &str) -> f64 {
    parm.metric("nv_inference_request_failure", &[&format!("reason=\"{reason}\"")])
}

/// Asserts that an answer has this status and an error message.
fn assert_problem(answer: &http::Answer, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.body_text());
    assert_eq!(answer.header("content-type").as_deref(), Some("application/json"), "{what}");
    let words = answer.json()["error"].as_str().unwrap_or_default().to_owned();
    assert!(!words.is_empty(), "{what}: {}", answer.body_text());
}

async fn grpc(parm: &Parm) -> Grpc {
    Grpc::connect(parm.grpc).await
}

/// A request for one row of the affine model, as a message.
fn message() -> ModelInferRequest {
    convert::request_to_message(affine::request(&affine::rows(1, 3)))
}

/// The same for the slow model.
fn slow_message() -> ModelInferRequest {
    let mut message = message();
    message.model_name = "slow".into();
    message.inputs[0].name = "input".into();
    message
}

/// The head of a request for a prediction, without its body.
fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: parm\r\ncontent-length: {length}\r\n\r\n")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a whole request for a slow prediction, and does not wait for the answer.
fn ask_slow(parm: &Parm) -> TcpStream {
    let mut stream = connect(parm.http);
    let body = slow_body();
    stream.write_all(head(SLOW_INFER, body.len()).as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream
}

/// Reads until the server closes or resets the connection.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        let patience_ended =
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
        assert!(!patience_ended, "the connection stayed open");
    }
    all
}
