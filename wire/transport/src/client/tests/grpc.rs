//! The client over gRPC against servers with scripted answers.

use std::time::Duration;

use ::http::Response;
use parm_protocol::Code;
use parm_protocol::client::CallContext;
use parm_protocol::grpc::inference::{ModelInferRequest, ModelInferResponse};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::request;
use crate::client::upstream::tests::calls::{Pair, heard, say};
use crate::client::{Config, connect};
use crate::grpc::{self, Method};

const DONE: &[(&str, &str)] = &[("grpc-status", "0")];

#[tokio::test]
async fn requests_carry_raw_tensors_deadline_trace_and_credential() {
    let pair = Pair::with("grpc", &h2::server::Builder::new(), |_, mut request, respond| async move {
        assert_eq!(request.uri().path(), ModelInferRequest::PATH);
        let sent =
            ["authorization", "traceparent", "te", "content-type"].map(|name| &request.headers()[name]);
        assert_eq!(sent, ["Bearer hush", "00-1-2-01", "trailers", "application/grpc"]);
        let left = request.headers()["grpc-timeout"].to_str().unwrap();
        assert!(left.starts_with("59") && left.ends_with('u'), "{left}");
        let message: ModelInferRequest = grpc::only(heard(&mut request).await.into()).unwrap();
        assert_eq!((message.model_name.as_str(), message.model_version.as_str()), ("m", ""));
        assert_eq!(message.raw_input_contents, [&[0, 1, 2][..]]);
        let answer = ModelInferResponse { id: message.id, ..Default::default() };
        say(respond, &[&grpc::frame(&answer)], DONE);
    })
    .await;
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let context = CallContext { deadline, traceparent: Some("00-1-2-01".into()), ..CallContext::default() };
    assert_eq!(pair.client.infer(request("q", 3), context).await.unwrap().id, "q");
}

#[tokio::test]
async fn no_request_is_lost_when_a_server_sends_goaway() {
    let pair = Pair::with("grpc", &h2::server::Builder::new(), |_, _, respond| async move {
        say(respond, &[&grpc::frame(&ModelInferResponse::default())], DONE);
    })
    .await;
    let callers = (0..8).map(|_| async {
        for _ in 0..500 {
            pair.client.infer(request("", 8), CallContext::default()).await.unwrap();
        }
    });
    futures::future::join_all(callers).await;
}

#[tokio::test]
async fn answer_that_is_not_grpc_keeps_its_class() {
    let pair = Pair::with("grpc", &h2::server::Builder::new(), |_, _, mut respond| async move {
        let head = Response::builder().status(503).body(()).unwrap();
        respond.send_response(head, false).unwrap().send_data("busy".into(), true).unwrap();
    })
    .await;
    let error = pair.client.infer(request("", 8), CallContext::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

/// A message that says "ready".
const READY: &[u8] = b"\0\0\0\0\x02\x08\x01";

#[tokio::test]
async fn probe_on_a_connection_that_its_server_ends_gets_another() {
    for scheme in ["grpc", "upstream+grpc"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
        let client = connect(&endpoint, &Config::default()).unwrap();
        // It answers the first request of each connection, which ends as its second one arrives.
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (_, respond) = connection.accept().await.unwrap().unwrap();
                say(respond, &[READY], DONE);
                let _ = connection.accept().await;
            }
        });
        for number in 0..3 {
            assert!(matches!(client.is_ready().await, Ok(true)), "{scheme}: probe {number}");
        }
    }
}
