//! Tests slow clients: an endless head or body holds one connection until a timeout, and nothing else.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::{INFER, assert_serves, connect, head, serve, until_closed};
use crate::support::Parm;
use crate::support::process::PATIENCE;

const BODY: [&str; 2] = ["--set", "server.body_timeout_ms=300"];

/// Sends a byte at a time until the server closes the connection. Panics if it stays open.
fn dribble(mut stream: TcpStream, begin: &[u8], with: u8) -> String {
    stream.write_all(begin).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let answer = thread::spawn(move || until_closed(&mut reader));
    let deadline = Instant::now() + PATIENCE;
    while !answer.is_finished() {
        assert!(Instant::now() < deadline, "the server kept a slow client for {PATIENCE:?}");
        // Writing fails and reading ends after the server has closed.
        let _ = stream.write_all(&[with]);
        thread::sleep(Duration::from_millis(20));
    }
    String::from_utf8_lossy(&answer.join().unwrap()).into_owned()
}

/// Runs several slow clients at once, and asserts that the server answers others meanwhile.
fn answers_to_slow(parm: &Parm, begin: &'static [u8], addresses: &[SocketAddr], with: u8) -> Vec<String> {
    let dribblers: Vec<_> = addresses
        .iter()
        .map(|&address| {
            let stream = connect(address);
            thread::spawn(move || dribble(stream, begin, with))
        })
        .collect();
    loop {
        assert_serves(parm, "dribblers began");
        if dribblers.iter().all(|dribbler| dribbler.is_finished()) {
            break;
        }
    }
    dribblers.into_iter().map(|dribbler| dribbler.join().unwrap()).collect()
}

#[test]
fn kept_connection_stays_open_beyond_the_head_timeout() {
    let parm = serve(&["--set", "server.head_timeout_ms=50", "--set", "server.idle_timeout_ms=400"]);
    let mut kept = connect(parm.http);
    kept.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: parm\r\n\r\n").unwrap();
    let mut silent = connect(parm.http);
    assert_eq!(until_closed(&mut silent), b"", "the silent one is closed first");
    kept.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: parm\r\n\r\n").unwrap();
    // Both requests are answered, and then the idle timeout closes the connection.
    let answers = String::from_utf8(until_closed(&mut kept)).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
}

#[test]
fn endless_body_is_an_error() {
    let parm = serve(&BODY);
    let addresses = [parm.http, parm.http, parm.grpc];
    let begin = head(INFER, 1 << 20).leak().as_bytes();
    for answer in answers_to_slow(&parm, begin, &addresses, b' ') {
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive"), "{answer}");
    }
    let chunks = b"POST /v2/models/affine/infer HTTP/1.1\r\nhost: parm\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\nfff\r\n";
    for answer in answers_to_slow(&parm, chunks, &[parm.http], b' ') {
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive"), "{answer}");
    }
}
