//! Calls over HTTP/2 at the limits of the client and of the server.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use parm_protocol::{Error, grpc_status};
use tokio::time::timeout;

use super::calls::{FIRST, Pair, begun, head};
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

#[test]
fn limit_is_told_to_calls_as_a_status() {
    let Error::Answered(answer) = busy(true) else { panic!() };
    assert_eq!((grpc_status(&answer.headers), answer.status), (Some(14), StatusCode::OK));
    assert!(answer.headers.contains_key("grpc-retry-pushback-ms") && answer.body.is_empty());
}
