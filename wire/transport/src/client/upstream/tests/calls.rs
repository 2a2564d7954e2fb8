//! Tests of the client over HTTP/2, against scripted servers of gRPC and of plain HTTP/2.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::grpc::inference::ModelInferRequest;
use parm_protocol::{Code, Error, OpaqueAnswer, OpaqueBody, OpaqueRequest, RestOfBody, grpc_status};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::client::{Config, Token, connect};
use crate::grpc::Method as _;

pub(super) const FIRST: &[u8] = b"\0\0\0\0\x03abc";

/// A server of HTTP/2, and a client of it.
pub(in crate::client) struct Pair {
    pub(in crate::client) client: Arc<dyn Client>,
    connections: Arc<AtomicUsize>,
}

impl Pair {
    pub(super) async fn new<F, A>(answer: F) -> Self
    where
        F: Fn(usize, Request<RecvStream>, SendResponse<Bytes>) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        Self::with("upstream+grpc", &h2::server::Builder::new(), answer).await
    }

    pub(super) async fn well() -> Self {
        Self::new(|_, _, respond| async move { well(respond) }).await
    }

    /// `answer` gets every request with its number. The connection of every tenth prediction ends with it.
    pub(in crate::client) async fn with<F, A>(scheme: &str, server: &h2::server::Builder, answer: F) -> Self
    where
        F: Fn(usize, Request<RecvStream>, SendResponse<Bytes>) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = Config { token: Some(Token::new("hush")), ..Config::default() };
        let client = connect(&endpoint, &config).unwrap();
        let (answer, connections, requests) = (Arc::new(answer), Arc::default(), Arc::default());
        let (count, numbers): (Arc<AtomicUsize>, Arc<AtomicUsize>) = (Arc::clone(&connections), requests);
        let server = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (answer, numbers, server) = (answer.clone(), numbers.clone(), server.clone());
                tokio::spawn(async move {
                    let Ok(mut connection) = server.handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let number = numbers.fetch_add(1, Ordering::Relaxed);
                        let last = number % 10 == 9 && request.uri().path() == ModelInferRequest::PATH;
                        tokio::spawn(answer(number, request, respond));
                        if last {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
        Self { client, connections }
    }

    pub(super) async fn ask(&self) -> Result<OpaqueAnswer, Error> {
        self.forward(call(true)).await
    }

    pub(super) async fn forward(&self, request: Arc<OpaqueRequest>) -> Result<OpaqueAnswer, Error> {
        self.client.forward(request, CallContext::default()).await
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(super) fn call(repeatable: bool) -> Arc<OpaqueRequest> {
    Arc::new(OpaqueRequest {
        method: Method::POST,
        target: "/a.Service/Method".parse().unwrap(),
        headers: headers(&[("content-type", "application/grpc"), ("x-mine", "1"), ("grpc-timeout", "5S")]),
        body: FIRST.into(),
        stream: None,
        repeatable,
        stall: Duration::from_secs(5),
    })
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let parsed = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
    list.iter().map(parsed).collect::<Vec<(http::HeaderName, HeaderValue)>>().into_iter().collect()
}

pub(in crate::client) fn head(list: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = headers(&[&[("content-type", "application/grpc")], list].concat());
    response
}

pub(in crate::client) fn say(
    mut respond: SendResponse<Bytes>,
    messages: &[&[u8]],
    trailers: &[(&str, &str)],
) {
    let mut stream = respond.send_response(head(&[("x-a", "1")]), false).unwrap();
    for message in messages {
        stream.send_data(Bytes::copy_from_slice(message), false).unwrap();
    }
    stream.send_trailers(headers(trailers)).unwrap();
}

pub(super) fn well(respond: SendResponse<Bytes>) {
    say(respond, &[FIRST], &[("grpc-status", "0")]);
}

/// Begins an answer with a message.
pub(super) fn begin(respond: &mut SendResponse<Bytes>) -> SendStream<Bytes> {
    let mut stream = respond.send_response(head(&[]), false).unwrap();
    stream.send_data(FIRST.into(), false).unwrap();
    stream
}

pub(in crate::client) async fn heard(request: &mut Request<RecvStream>) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(bytes) = request.body_mut().data().await {
        body.extend_from_slice(&bytes.unwrap());
    }
    body
}

pub(super) fn begun(answer: OpaqueAnswer) -> (Bytes, RestOfBody) {
    match answer.body {
        OpaqueBody::Begun(first, rest) => (first, rest),
        OpaqueBody::Whole(body) => panic!("it should have begun only: {body:?}"),
    }
}

async fn trailers(rest: RestOfBody) -> (Bytes, HeaderMap) {
    let whole = rest.collect().await.unwrap();
    let trailers = whole.trailers().cloned().unwrap_or_default();
    (whole.to_bytes(), trailers)
}

/// A client of HTTP/2 ends its connection after a hundred empty frames of any of its streams.
#[tokio::test]
async fn empty_end_of_an_answer_is_not_passed_on() {
    let pair = Pair::new(|_, _, mut respond| async move {
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        for (piece, is_last) in [("a", false), ("", false), ("b", false), ("", true)] {
            stream.send_data(piece.into(), is_last).unwrap();
        }
    })
    .await;
    let (first, mut rest) = begun(pair.ask().await.unwrap());
    let mut pieces = vec![first];
    while let Some(frame) = rest.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    assert_eq!(pieces, ["a", "b"]);
}

#[tokio::test]
async fn failure_of_the_server_is_told_from_an_answer() {
    const PUSHBACK: (&str, &str) = ("grpc-retry-pushback-ms", "7");
    for (fields, expected) in [
        (&[("grpc-status", "14"), ("grpc-message", "busy")][..], Some(Code::Unavailable)),
        (&[("grpc-status", "8"), PUSHBACK], Some(Code::Unavailable)),
        (&[("grpc-status", "13")], Some(Code::Internal)),
        (&[("grpc-status", "2")], Some(Code::Internal)),
        (&[("grpc-status", "8")], None),
        (&[("grpc-status", "5"), ("grpc-message", "no model")], None),
        (&[("grpc-status", "4")], None),
        (&[("grpc-status", "0")], None),
    ] {
        // The status is in the head of an answer without messages, or in the trailers after it.
        for in_head in [true, false] {
            let pair = Pair::new(move |_, _, mut respond| async move {
                if in_head {
                    respond.send_response(head(fields), true).unwrap();
                } else {
                    say(respond, &[], fields);
                }
            })
            .await;
            let found = match (pair.ask().await, expected) {
                (Err(error), Some(code)) => {
                    assert_eq!(error.code(), code, "{fields:?}: {error}");
                    let Error::Answered(answer) = error else { panic!("{error:?}") };
                    assert_eq!(answer.status, StatusCode::OK);
                    answer.headers
                }
                (Ok(answer), None) if in_head => {
                    assert!(matches!(&answer.body, OpaqueBody::Whole(body) if body.is_empty()), "{fields:?}");
                    answer.headers
                }
                (Ok(answer), None) => trailers(begun(answer).1).await.1,
                (other, _) => panic!("{fields:?}: {other:?}"),
            };
            for (name, value) in fields {
                assert_eq!(found[*name], *value);
            }
        }
    }
}

#[tokio::test]
async fn call_that_is_reset_fails_alone() {
    let pair = Pair::new(|number, _, mut respond| async move {
        match number {
            0 => respond.send_reset(Reason::INTERNAL_ERROR),
            _ => well(respond),
        }
    })
    .await;
    let error = pair.ask().await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
    pair.ask().await.unwrap();
    assert_eq!(pair.connections(), 1);
}

#[tokio::test]
async fn answer_without_message_or_status_is_an_error() {
    let pair = Pair::new(|number, _, mut respond| async move {
        let mut stream = respond.send_response(head(&[]), number == 0).unwrap();
        if number > 0 {
            stream.send_data(FIRST[..7].into(), true).unwrap();
        }
    })
    .await;
    for _ in 0..2 {
        let error = pair.ask().await.unwrap_err();
        assert!(error.to_string().contains("without a gRPC status"), "{error}");
    }
}

#[tokio::test]
async fn refused_call_is_sent_again_even_if_it_must_run_once() {
    let pair = Pair::new(|number, _, mut respond| async move {
        match number {
            0 => respond.send_reset(Reason::REFUSED_STREAM),
            _ => well(respond),
        }
    })
    .await;
    pair.forward(call(false)).await.unwrap();
}

#[tokio::test]
async fn cancelled_call_is_reset_at_the_server() {
    for answers in [false, true] {
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let began = Arc::new(Notify::new());
        let begins = began.clone();
        let pair = Pair::new(move |number, _, mut respond| {
            let (tell, begins) = (tell.lock().unwrap().take(), begins.clone());
            async move {
                let Some(tell) = tell.filter(|_| number == 0) else {
                    return well(respond);
                };
                begins.notify_one();
                let reason = if answers {
                    let mut stream = begin(&mut respond);
                    poll_fn(|cx| stream.poll_reset(cx)).await
                } else {
                    poll_fn(|cx| respond.poll_reset(cx)).await
                };
                tell.send(reason.unwrap()).unwrap();
            }
        })
        .await;
        if answers {
            drop(begun(pair.ask().await.unwrap()));
        } else {
            tokio::select! {
                answer = pair.ask() => panic!("{answer:?}"),
                () = began.notified() => {}
            }
        }
        assert_eq!(told.await.unwrap(), Reason::CANCEL);
        pair.ask().await.unwrap();
        assert_eq!(pair.connections(), 1, "other calls keep the connection");
    }
}

#[tokio::test]
async fn calls_that_arrive_together_share_one_connection() {
    let pair = Pair::well().await;
    let answers = futures::future::join_all((0..50).map(|_| pair.ask())).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(pair.connections(), 1);
}

#[tokio::test]
async fn client_that_does_not_read_holds_up_only_its_own_call() {
    let pair = Pair::new(|number, _, respond| async move {
        if number < 8 {
            // Far more than all windows of one stream.
            let mut respond = respond;
            let mut stream = begin(&mut respond);
            stream.send_data(vec![0; 8 << 20].into(), false).unwrap();
            let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
        } else {
            well(respond);
        }
    })
    .await;
    let unread = futures::future::join_all((0..8).map(|_| pair.ask())).await;
    assert!(unread.iter().all(Result::is_ok));
    for _ in 0..20 {
        assert_eq!(grpc_status(&trailers(begun(pair.ask().await.unwrap()).1).await.1), Some(0));
    }
    assert_eq!(pair.connections(), 1);
}

#[tokio::test]
async fn other_requests_pass_over_http2_too() {
    let pair = Pair::new(|number, request, mut respond| async move {
        assert_eq!(request.headers().get("te"), None);
        assert_eq!(request.headers()["content-length"], "3");
        let status = if number == 0 { 200 } else { 503 };
        let response = Response::builder().status(status).header("content-type", "application/json");
        let mut stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
        stream.send_data("{}".into(), true).unwrap();
    })
    .await;
    let headers = headers(&[("content-type", "application/json")]);
    let plain = Arc::new(OpaqueRequest { headers, body: "ask".into(), ..(*call(true)).clone() });
    let answer = pair.forward(plain.clone()).await.unwrap();
    assert!(matches!(&answer.body, OpaqueBody::Whole(body) if body == "{}"), "{answer:?}");
    let error = pair.forward(plain).await.unwrap_err();
    assert!(matches!(&error, Error::Answered(answer) if answer.status == 503), "{error:?}");
}
