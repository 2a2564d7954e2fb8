//! Calls over HTTP/2 at the limits of the client and of the server.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use parm_protocol::client::CallContext;
use parm_protocol::{Error, grpc_status};
use tokio::time::timeout;

use super::calls::{FIRST, Pair, begun, head, with};
use crate::client::upstream::busy;

/// A server that begins each answer and never ends it, and takes so many calls at a time on a connection.
async fn streaming(most: u32) -> Pair {
    let mut server = h2::server::Builder::new();
    server.max_concurrent_streams(most);
    Pair::with(&server, |_, _, mut respond| async move {
        let mut stream = respond.send_response(head(&[]), false).unwrap();
        stream.send_data(Bytes::from_static(FIRST), false).unwrap();
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
        let mut stream = respond.send_response(head(&[]), false).unwrap();
        stream.send_data(Bytes::from_static(FIRST), false).unwrap();
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

/// The library ends a connection after a hundred empty pieces that do not end their answer.
#[tokio::test]
async fn empty_pieces_end_a_connection_only_once() {
    let pair = Pair::new(|_, request, mut respond| async move {
        let mut stream = respond.send_response(head(&[]), false).unwrap();
        stream.send_data(Bytes::from_static(FIRST), false).unwrap();
        if request.headers().contains_key("x-long") {
            return std::future::pending().await;
        }
        stream.send_data(Bytes::new(), false).unwrap();
        let status = (http::HeaderName::from_static("grpc-status"), "0".parse().unwrap());
        stream.send_trailers([status].into_iter().collect()).unwrap();
    })
    .await;
    let ask = || async {
        let (_, rest) = begun(pair.ask().await?);
        let whole = rest.collect().await?;
        Ok::<_, Error>(whole.trailers().and_then(grpc_status))
    };
    let mut broken = Vec::new();
    for number in 1..=110 {
        if ask().await != Ok(Some(0)) {
            broken.push(number);
        }
    }
    let long = || async {
        let answer = pair.client.forward(with("x-long"), CallContext::default()).await;
        begun(answer.unwrap()).1
    };
    let mut all = vec![long().await, long().await];
    for number in 0..300 {
        assert_eq!(ask().await, Ok(Some(0)), "call {number}");
    }
    all.push(long().await);
    for long in &mut all {
        assert!(timeout(Duration::from_millis(50), long.frame()).await.is_err(), "a long stream ended");
    }
    let [last] = broken[..] else { panic!("broken calls: {broken:?}") };
    // How many pieces the library takes depends on how soon they are read.
    let after: usize = 110 - last + 300 + all.len();
    assert_eq!(pair.connections(), 1 + after.div_ceil(64), "call {last} was broken");
}

#[test]
fn limit_is_told_to_calls_as_a_status() {
    let Error::Answered(answer) = busy(true) else { panic!() };
    assert_eq!((grpc_status(&answer.headers), answer.status), (Some(14), StatusCode::OK));
    assert!(answer.headers.contains_key("grpc-retry-pushback-ms") && answer.body.is_empty());
}
