//! Requests that are answered before their bodies have arrived.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::tests::connect;
use super::*;
use crate::keys::{Digest, Entry, Keys, Role};
use crate::scripted::{Scripted, echo};
use crate::server::Config;

/// A server that requires a key, and a connection to it.
fn locked(config: Config) -> UnixStream {
    let keys = Keys::of(&[Entry::new("a", Role::Infer, Digest::of(b"hush"))]);
    let service = Scripted(|request, _| async { Ok(echo(request)) });
    connect(&Shared::new(config, Arc::new(service), keys)).0
}

const PATHS: [&str; 3] = ["/v2/models/m/infer", "/v1/embeddings", "/nothing"];

/// Sends a body as far as the server's window allows it, and then the rest.
async fn send(stream: &mut h2::SendStream<Bytes>, mut left: usize) -> Result<(), h2::Error> {
    while left > 0 {
        stream.reserve_capacity(left);
        // It tells only of room that is new.
        let room = match stream.capacity() {
            0 => poll_fn(|cx| stream.poll_capacity(cx)).await.expect("the stream ended")?,
            room => room,
        };
        let size = room.min(left).min(16 << 10);
        left -= size;
        stream.send_data(vec![b'x'; size].into(), left == 0)?;
    }
    Ok(())
}

#[tokio::test]
async fn refusal_over_http2_is_no_reset_of_its_stream() {
    let (mut client, connection) = h2::client::handshake(locked(Config::default())).await.unwrap();
    tokio::spawn(connection);
    for path in PATHS {
        for size in [1, 200_000, 3 << 20] {
            client = client.ready().await.unwrap();
            let request = Request::builder().method(Method::POST).uri(format!("http://a{path}"));
            let (answer, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
            // The server sees the head before the body, as of most clients.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            send(&mut stream, size).await.unwrap_or_else(|error| panic!("{path}, {size} bytes: {error}"));
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{path}");
            let mut body = answer.into_body();
            while let Some(piece) = body.data().await {
                body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
            }
        }
    }
}

/// Reads an answer of HTTP/1.1 with a length.
async fn hear(stream: &mut UnixStream) -> String {
    let mut heard = Vec::new();
    while !heard.windows(4).any(|end| end == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "{}", String::from_utf8_lossy(&heard));
    }
    let head = String::from_utf8(heard).unwrap().to_lowercase();
    let (head, begun) = head.split_once("\r\n\r\n").unwrap();
    let length = head.split_once("content-length: ").unwrap().1;
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut rest = vec![0; length - begun.len()];
    stream.read_exact(&mut rest).await.unwrap();
    head.to_owned()
}

#[tokio::test]
async fn refused_body_of_http1_leaves_its_connection_open() {
    let mut stream = locked(Config::default());
    for path in PATHS {
        let body = vec![b'x'; 3 << 20];
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let head = hear(&mut stream).await;
        assert!(head.starts_with("http/1.1 401"), "{path}: {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_waits_for_its_answer_gets_it() {
    // With `Expect` nothing may be read: the client would send the body.
    for (expect, least) in [("expect: 100-continue\r\n", Duration::ZERO), ("", Duration::from_millis(900))] {
        let mut stream = locked(Config::default());
        let head = format!("POST /v1/embeddings HTTP/1.1\r\nhost: a\r\n{expect}content-length: 5\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let began = tokio::time::Instant::now();
        let head = hear(&mut stream).await;
        assert!(head.starts_with("http/1.1 401"), "{head}");
        let waited = began.elapsed();
        assert!((least..Duration::from_secs(2)).contains(&waited), "{expect}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn body_that_is_too_long_to_pass_over_is_refused_at_once() {
    let mut stream = locked(Config::default());
    let head = "POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(hear(&mut stream).await.starts_with("http/1.1 401"));
    assert!(began.elapsed() < Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn body_that_trickles_is_not_read_for_ever() {
    let mut stream = locked(Config::default());
    let head = "POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();
    let (mut from, mut to) = stream.into_split();
    tokio::spawn(async move {
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let mut heard = [0; 12];
    from.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HTTP/1.1 401");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}
