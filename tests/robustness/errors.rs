//! Tests the classes of errors over HTTP and gRPC: status, message and count.

use parm_protocol::grpc::inference::InferParameter;
use parm_protocol::grpc::inference::infer_parameter::ParameterChoice;
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    INFER, SLOW_INFER, ask_slow, assert_problem, assert_serves, good, grpc, message, refused, serve,
    serve_slow, slow_body, slow_message,
};
use crate::support::http;

#[test]
fn invalid_http_requests_are_rejected_and_counted() {
    let parm = serve(&[]);
    let fine = good().to_string().into_bytes();
    let mut unfit = good();
    unfit["inputs"][0]["shape"] = json!([1, 2, 2]);
    for (what, path, body, status) in [
        ("unknown model before a fault of the body", "/v2/models/nothing/infer", Vec::new(), 404),
        ("unknown version", "/v2/models/affine/versions/77/infer", fine.clone(), 404),
        ("unknown path", "/v2/models/affine/guess", fine.clone(), 404),
        ("a path that is not UTF-8", "/v2/models/%ff%fe/infer", fine, 400),
        ("invalid JSON", INFER, b"{\"inputs\": [".to_vec(), 400),
        ("wrong shape", INFER, unfit.to_string().into_bytes(), 400),
    ] {
        let reason = if status == 404 { "not_found" } else { "invalid_argument" };
        let before = refused(&parm, reason);
        assert_problem(&http::post(parm.http, path, &body), status, what);
        assert_eq!(refused(&parm, reason), before + 1.0, "{what} is counted once");
    }
    assert_problem(&http::get(parm.http, "/v2/models/nothing"), 404, "metadata of an unknown model");
    assert_problem(&http::get(parm.http, INFER), 405, "a method that is not offered");
    assert_serves(&parm, "every fault");
}

#[tokio::test]
async fn body_over_the_limit_is_rejected() {
    let parm = serve(&["--set", "server.max_body_bytes=65536"]);
    // The larger one is still being sent when the answer comes.
    for (times, bytes) in [(1.0, 65_537), (2.0, 32 << 20)] {
        let answer = http::post(parm.http, INFER, &vec![b' '; bytes]);
        assert_problem(&answer, 413, "a large body");
        assert_eq!(refused(&parm, "too_large"), times);
    }
    let mut chunked =
        b"POST /v2/models/affine/infer HTTP/1.1\r\nhost: parm\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..2 {
        chunked.extend_from_slice(b"a000\r\n");
        chunked.extend_from_slice(&[b' '; 0xa000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_problem(&http::raw(parm.http, &chunked), 413, "a large body of unknown length");
    let mut client = grpc(&parm).await;
    let mut large = message();
    large.raw_input_contents = vec![vec![0; 70_000].into()];
    let status = client.ask(large).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(refused(&parm, "too_large"), 4.0);
    assert_serves(&parm, "large bodies");
}

#[tokio::test]
async fn full_queue_rejects_at_once_with_a_retry_time() {
    let parm = serve_slow(30_000, &["--set", "frontend.dispatch.queue_limit=1"]);
    let _running = ask_slow(&parm);
    parm.until("one runs", |parm| parm.metric("parm_jobs_running", &["model=\"slow\""]) == 1.0);
    let _waiting = ask_slow(&parm);
    parm.until("one waits", |parm| parm.metric("parm_queue_depth", &["model=\"slow\""]) == 1.0);
    let answer = http::post(parm.http, SLOW_INFER, &slow_body());
    assert_problem(&answer, 503, "a full queue");
    assert_eq!(answer.header("retry-after").as_deref(), Some("1"));
    let status = grpc(&parm).await.ask(slow_message()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert_eq!(refused(&parm, "overloaded"), 2.0);
}

#[tokio::test]
async fn missed_deadline_is_reported_and_counted() {
    let parm = serve_slow(30_000, &[]);
    let mut body: Value = serde_json::from_slice(&slow_body()).unwrap();
    body["parameters"] = json!({"timeout": 50_000});
    assert_problem(&http::post(parm.http, SLOW_INFER, body.to_string().as_bytes()), 504, "a deadline");
    assert_eq!(refused(&parm, "deadline"), 1.0);
    let mut late = slow_message();
    let soon = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(50_000)) };
    late.parameters.insert("timeout".into(), soon);
    let status = grpc(&parm).await.ask(late).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(refused(&parm, "deadline"), 2.0);
    // The deadline of the transport, sent by hand: a gRPC client would time out before the server's answer.
    let message = slow_message().encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = [&[0], &length[..], &message].concat();
    let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "50m")];
    let path = "/inference.GRPCInferenceService/ModelInfer";
    let answer = http::request(parm.grpc, "POST", path, &headers, &framed);
    assert_eq!(answer.header("grpc-status").as_deref(), Some("4"), "{answer:?}");
    assert_eq!(refused(&parm, "deadline"), 3.0);
}
