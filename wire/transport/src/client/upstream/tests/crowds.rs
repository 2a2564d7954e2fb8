//! Calls over HTTP/2 at the limits of the client and of the server, and probes: the signs of life of a server.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use parm_protocol::client::CallContext;
use parm_protocol::{Error, grpc_status};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::calls::{Pair, begin, begun, call, head, well};
use crate::client::upstream::busy;
use crate::client::{Config, connect};

/// A server that begins each answer and never ends it, and takes so many calls at a time on a connection.
async fn streaming(most: u32) -> Pair {
    let mut server = h2::server::Builder::new();
    server.max_concurrent_streams(most);
    Pair::with("upstream+grpc", &server, |_, _, mut respond| async move {
        let _stream = begin(&mut respond);
        std::future::pending().await
    })
    .await
}

#[tokio::test]
async fn call_gets_another_connection_when_streams_fill_one() {
    let pair = streaming(2).await;
    let mut streams = Vec::new();
    for number in 0..5 {
        let answer = timeout(Duration::from_secs(5), pair.ask()).await;
        streams.push(begun(
            answer.unwrap_or_else(|_| panic!("call {number} waits for a stream to end")).unwrap(),
        ));
    }
    assert_eq!(pair.connections(), 3);
}

#[tokio::test]
async fn server_full_of_streams_is_well() {
    let pair = streaming(1).await;
    let _stream = begun(pair.ask().await.unwrap());
    let alive = timeout(Duration::from_secs(5), pair.client.is_ready()).await;
    assert!(alive.expect("the probe waits for a stream to end").unwrap());
}

/// The library ends a connection on which too many small pieces wait to be read.
#[tokio::test]
async fn unread_pieces_of_one_answer_end_no_other() {
    let pair = Pair::new(|number, _, mut respond| async move {
        let mut stream = begin(&mut respond);
        for _ in 0..if number == 0 { 8192 } else { 1 } {
            stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        }
        let status = (http::HeaderName::from_static("grpc-status"), "0".parse().unwrap());
        stream.send_trailers([status].into_iter().collect()).unwrap();
    })
    .await;
    let _unread = begun(pair.ask().await.unwrap());
    for _ in 0..64 {
        let whole = begun(pair.ask().await.unwrap()).1.collect().await.unwrap();
        assert_eq!(whole.trailers().and_then(grpc_status), Some(0));
    }
    assert_eq!(pair.connections(), 1);
}

#[test]
fn limit_is_told_to_calls_as_a_status() {
    let Error::Answered(answer) = busy(true) else { panic!() };
    assert_eq!((grpc_status(&answer.headers), answer.status), (Some(14), StatusCode::OK));
    assert!(answer.headers.contains_key("grpc-retry-pushback-ms") && answer.body.is_empty());
}

#[tokio::test]
async fn probe_takes_any_sign_of_life() {
    for (status, more, alive) in [
        (Some(404), &[][..], true),
        (Some(415), &[], true),
        (Some(200), &[("grpc-status", "12")], true),
        (Some(503), &[("grpc-status", "12")], true),
        (Some(503), &[], false),
        (None, &[], true),
    ] {
        let pair = Pair::new(move |_, request, mut respond| async move {
            assert_eq!((request.method(), request.uri().path()), (&Method::GET, "/health"));
            match status {
                Some(status) => {
                    let mut answer = head(more);
                    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                    respond.send_response(answer, true).unwrap();
                }
                None => respond.send_reset(Reason::PROTOCOL_ERROR),
            }
        })
        .await;
        assert_eq!(pair.client.is_ready().await.unwrap(), alive, "{status:?} {more:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("upstream+grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = connect(&endpoint, &Config::default()).unwrap();
    assert!(matches!(client.is_ready().await, Err(Error::Transport { .. })));
    let error = client.forward(call(true), CallContext::default()).await.unwrap_err();
    assert!(matches!(error, Error::Unsent { .. }), "{error:?}");
}

#[tokio::test]
async fn probe_without_an_answer_gives_its_connection_up() {
    let arrived = Arc::new(Notify::new());
    let tells = arrived.clone();
    let pair = Pair::new(move |number, _, mut respond| {
        let tells = tells.clone();
        async move {
            if number > 0 {
                return well(respond);
            }
            tells.notify_one();
            drop(poll_fn(|cx| respond.poll_reset(cx)).await);
        }
    })
    .await;
    tokio::select! {
        ready = pair.client.is_ready() => panic!("{ready:?}"),
        () = arrived.notified() => {}
    }
    pair.ask().await.unwrap();
    assert_eq!(pair.connections(), 2);
}
