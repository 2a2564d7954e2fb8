//! Routed requests that are answered before their bodies have arrived.

use std::convert::Infallible;
use std::future::poll_fn;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

/// A connection to an address that refuses each request by its head.
fn connect() -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let refuse = |request: Request<Lent<Incoming>>| async move {
        drop(request);
        let mut response = Response::new(Full::new(Bytes::from_static(b"no key")));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        Ok::<_, Infallible>(response)
    };
    let limits = ConnectionLimits::operators(std::time::Duration::ZERO);
    tokio::spawn(serve_one(ours.into(), Routed(tower::service_fn(refuse)), limits, Drain::default()));
    theirs
}

const SIZE: usize = 1_500_000;

#[tokio::test]
async fn refused_body_leaves_its_connection_open() {
    let mut stream = connect();
    for _ in 0..3 {
        let head = format!("PATCH / HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; SIZE]).await.expect("the connection ended before the body");
        let mut heard = Vec::new();
        while !heard.ends_with(b"no key") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "it ended before the answer");
        }
        assert!(heard.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&heard));
    }
}

#[tokio::test]
async fn refusal_over_http2_is_no_reset() {
    let (client, connection) = h2::client::handshake(connect()).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = Request::post("http://a/").body(()).unwrap();
    let (answer, mut stream) = client.send_request(request, false).unwrap();
    // The server sees the head before the body, as of most clients.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let mut left = SIZE;
    while left > 0 {
        stream.reserve_capacity(left);
        let room = match stream.capacity() {
            0 => poll_fn(|cx| stream.poll_capacity(cx)).await.expect("the stream ended").unwrap(),
            room => room,
        };
        let size = room.min(left).min(16 << 10);
        left -= size;
        stream.send_data(vec![b'x'; size].into(), left == 0).unwrap();
    }
    assert_eq!(answer.await.unwrap().status(), StatusCode::UNAUTHORIZED);
}
