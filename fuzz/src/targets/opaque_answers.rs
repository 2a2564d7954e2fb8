//! Any bytes from an upstream server, as the answer to each attempt of a request that the first byte selects.
//!
//! The client always gets an answer, which is HTTP and ends. An error of ours says why in JSON.

use super::passage::Passage;

/// Requests: a stream, a read, a prediction, and one that is sent once.
const REQUESTS: [(&str, &str); 4] =
    [("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("POST", "/predict"), ("POST", "/v1/files")];

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static PASSAGE: Passage = Passage::start());
    let Some((choice, answer)) = data.split_first() else { return };
    let (method, path) = REQUESTS[usize::from(*choice) % REQUESTS.len()];
    let body = if method == "POST" { "ask" } else { "" };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let (came, heard) = PASSAGE.with(|passage| passage.send(request.as_bytes(), Some(answer)));
    let shown = String::from_utf8_lossy(&came);
    assert!(came.starts_with(b"HTTP/1.1 "), "{shown:?}");
    let status: u16 = shown.get(9..12).and_then(|text| text.parse().ok()).expect("a status");
    assert!((200..1000).contains(&status), "{shown:?}");
    assert!(!heard.is_empty(), "the server was not asked: {shown:?}");
    assert!(path != "/v1/files" || heard.len() == 1, "it was sent {} times", heard.len());
    let ours = shown.to_ascii_lowercase().find("\r\nparm-outcome: ").is_none();
    if ours && status >= 500 && !answer.starts_with(b"HTTP/1.") {
        assert!(shown.contains("\"message\":"), "{shown:?}");
    }
}
