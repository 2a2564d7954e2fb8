//! Any bytes from an upstream server, as the answer to each attempt of a request that the first byte selects.
//!
//! The client always gets one answer of HTTP, which ends and is bounded, and the server only the request that the client sent.

use super::passage::{Passage, values};

/// Requests: a stream, a read, a prediction, and one that is sent once.
const REQUESTS: [(&str, &str); 4] =
    [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("POST", "/predict"), ("POST", "/v1/files")];

/// Most bytes that an answer may have more than the server sent: an error's text, headers, and the sizes of chunks.
const MORE: usize = 16 << 10;

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static PASSAGE: Passage = Passage::start());
    let Some((choice, answer)) = data.split_first() else { return };
    let (method, path) = REQUESTS[usize::from(*choice) % REQUESTS.len()];
    let body = if method == "POST" { "ask" } else { "" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nparm-timeout-ms: 300\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (came, heard) = PASSAGE.with(|passage| passage.send(request.as_bytes(), Some(answer)));
    let shown = String::from_utf8_lossy(&came);
    assert!(path != "/v1/files" || heard.len() == 1, "it was sent {} times", heard.len());
    for request in &heard {
        assert!(request.starts_with(format!("{method} {path} HTTP/1.1\r\n").as_bytes()));
        assert!(request.ends_with(format!("\r\n\r\n{body}").as_bytes()));
    }
    assert!(came.len() <= 8 * answer.len() + MORE, "{} bytes became {}", answer.len(), came.len());
    let status = came.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.first());
    assert!(status.is_some_and(|status| (b'2'..=b'9').contains(status)), "{shown:?}");
    let head = came.windows(4).position(|four| four == b"\r\n\r\n").map(|end| &came[..end]);
    let head = head.unwrap_or_else(|| panic!("half an answer: {shown:?}"));
    assert!(values(head, "content-length").count() <= 1, "{shown:?}");
}
