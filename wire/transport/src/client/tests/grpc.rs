//! The client over gRPC against a minimal server with scripted answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parm_protocol::client::CallContext;
use parm_protocol::grpc::inference::{ModelInferRequest, ModelInferResponse};
use parm_protocol::{Code, InferRequest};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::request;
use crate::client::{Client, Config, Token, connect};
use crate::grpc::{self, Method};

/// Serves `ModelInfer` with a function, on connections that end after a while.
async fn serve<F>(lasts: Duration, answer: F) -> Arc<dyn Client>
where
    F: Fn(HeaderMap, ModelInferRequest) -> ModelInferResponse + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    assert_eq!(request.uri().path(), ModelInferRequest::PATH);
                    let (head, body) = request.into_parts();
                    let asked = grpc::only(body.collect().await.unwrap().to_bytes()).unwrap();
                    let body = Full::new(grpc::frame(&answer(head.headers, asked)));
                    let status = ("grpc-status".parse().unwrap(), "0".parse().unwrap());
                    let trailers = std::future::ready(Some(Ok(HeaderMap::from_iter([status]))));
                    Ok::<_, Infallible>(Response::new(body.with_trailers(trailers)))
                }
            });
            let http = http2::Builder::new(TokioExecutor::new());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let mut connection = std::pin::pin!(connection);
                if tokio::time::timeout(lasts, connection.as_mut()).await.is_err() {
                    connection.as_mut().graceful_shutdown();
                    connection.await.ok();
                }
            });
        }
    });
    let config = Config { token: Some(Token::new("hush")), ..Config::default() };
    connect(&endpoint, &config).unwrap()
}

#[tokio::test]
async fn requests_carry_raw_tensors_deadline_trace_and_credential() {
    let client = serve(Duration::from_secs(60), |headers, message| {
        assert_eq!((message.model_name.as_str(), message.model_version.as_str()), ("m", ""));
        assert_eq!(message.raw_input_contents, [[1.0f32, 2.0].map(f32::to_le_bytes).concat()]);
        let sent = ["authorization", "traceparent", "te", "content-type"].map(|name| &headers[name]);
        assert_eq!(sent, ["Bearer hush", "00-1-2-01", "trailers", "application/grpc"]);
        let left = headers["grpc-timeout"].to_str().unwrap();
        assert!(left.starts_with("59") && left.ends_with('u'), "{left}");
        ModelInferResponse { id: message.id, ..Default::default() }
    })
    .await;
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let context = CallContext { deadline, traceparent: Some("00-1-2-01".into()), ..CallContext::default() };
    assert_eq!(client.infer(request("q"), context).await.unwrap().id, "q");
}

#[tokio::test]
async fn no_request_is_lost_when_a_server_sends_goaway() {
    let client = serve(Duration::from_millis(2), |_, _| ModelInferResponse::default()).await;
    let callers = (0..8).map(|_| async {
        for _ in 0..500 {
            client.infer(request(""), CallContext::default()).await.unwrap();
        }
    });
    futures::future::join_all(callers).await;
}

#[tokio::test]
async fn answer_that_is_not_grpc_keeps_its_class() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(async |_: Request<Incoming>| {
                let response = Response::builder().status(503).body(Full::new(Bytes::from_static(b"busy")));
                Ok::<_, Infallible>(response.unwrap())
            });
            let http = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    let client = connect(&endpoint, &Config::default()).unwrap();
    let asked: InferRequest = request("");
    let error = client.infer(asked, CallContext::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}
