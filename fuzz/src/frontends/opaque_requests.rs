//! Any bytes from a client whose requests are passed on.
//!
//! The connection ends, what comes back is bounded, and each request that the server gets has one framing and no header of
//! the client's connection, so that no reader may find another request in it.

use super::passage::{Passage, values};

/// Most bytes that come back for each request, and for the end of a connection.
const MOST: usize = 4 << 10;

/// The connection preface of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Headers of one connection, which are never passed on.
const OF_A_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static PASSAGE: Passage = Passage::start());
    let (came, heard) = PASSAGE.with(|passage| passage.send(data, None));
    heard.iter().for_each(|request| assert_has_one_reading(request));
    let shown = String::from_utf8_lossy(&came);
    let (requests, echoed) = if let Some(frames) = data.strip_prefix(PREFACE) {
        assert!(came.is_empty() || came.get(3) == Some(&4), "settings come first: {shown:?}");
        (heads(frames), 2 * data.len())
    } else {
        assert!(came.is_empty() || came.starts_with(b"HTTP/1."), "{shown:?}");
        (lines(data), 0)
    };
    assert!(heard.len() <= requests, "{requests} requests became {}", heard.len());
    let most = (requests + 2) * MOST + echoed;
    assert!(came.len() <= most, "{} bytes became {}", data.len(), came.len());
}

fn assert_has_one_reading(request: &[u8]) {
    let shown = String::from_utf8_lossy(request);
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = request.split_at(end.unwrap_or_else(|| panic!("half a request: {shown:?}")) + 4);
    let count = |name| values(head, name).count();
    for name in OF_A_CONNECTION {
        assert_eq!(count(name), 0, "{name} in {shown:?}");
    }
    assert!(count("content-length") <= 1 && count("host") == 1, "{shown:?}");
    let length = values(head, "content-length").next().map_or(0, |length| length.parse().expect("a length"));
    assert_eq!(length, body.len(), "half a request: {shown:?}");
}

/// Most requests of HTTP/1 that these bytes may be.
fn lines(bytes: &[u8]) -> usize {
    bytes.windows(8).filter(|eight| eight.eq_ignore_ascii_case(b" HTTP/1.")).count()
}

/// Frames of HTTP/2 that begin a request.
fn heads(mut frames: &[u8]) -> usize {
    let mut heads = 0;
    while let [a, b, c, kind, ..] = *frames {
        heads += usize::from(kind == 1);
        let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        frames = frames.get(length..).unwrap_or_default();
    }
    heads
}
