//! Any bytes from an upstream server, as the answer to each attempt of a request that the first byte selects.
//!
//! The client always gets one answer of HTTP, which ends. An answer that has only one reading arrives as the server sent it. An error
//! of ours has a message in JSON.

use super::messages::{self, Message, OF_A_CONNECTION, Reading};
use super::passage::Passage;

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
        let Reading::Whole(request) = messages::request(request) else { panic!("{request:?}") };
        assert_eq!((&*request.start[0], &*request.start[1]), (method, path));
        assert_eq!(request.body, body.as_bytes());
    }
    assert!(came.len() <= 8 * answer.len() + MORE, "{} bytes became {}", answer.len(), came.len());
    let sent = sent(answer, method);
    let received = match messages::response(&came, method) {
        Reading::Whole(received) => received,
        // Cut, as its server's was.
        Reading::Part if sent.is_none() && came.starts_with(b"HTTP/1.1 ") => return,
        // Letters beyond ASCII are passed on.
        Reading::Unclear if sent.is_none() && came.starts_with(b"HTTP/1.1 ") => return,
        other => panic!("{other:?} of {shown:?}"),
    };
    assert_eq!(received.length, came.len(), "more follows: {shown:?}");
    assert!(received.status() >= 200, "{shown:?}");
    assert!(received.values("content-length").count() <= 1, "{shown:?}");
    let is_chunked = received.has("transfer-encoding");
    assert!(!(is_chunked && received.has("content-length")), "{shown:?}");
    for name in OF_A_CONNECTION.into_iter().filter(|name| *name != "transfer-encoding") {
        assert!(!received.has(name), "{name} in {shown:?}");
    }
    let is_error = |bytes: &[u8]| bytes.windows(12).any(|part| part == b"\"parm_error\"");
    let is_ours = is_error(&received.body) && !is_error(answer);
    match sent {
        // It may be ejected for its answers before.
        Some(_) if heard.is_empty() => assert!(is_ours, "the server was not asked: {shown:?}"),
        Some(sent) if !(may_fail(&sent) && is_ours) => compare(&sent, &received),
        Some(_) => {}
        None if is_ours => assert!(received.status() >= 500, "{shown:?}"),
        None => {}
    }
}

/// The server's answer, if it has only one reading.
fn sent(mut answer: &[u8], method: &str) -> Option<Box<Message>> {
    loop {
        let Reading::Whole(message) = messages::response(answer, method) else { return None };
        match message.status() {
            101 => return None,
            100..200 => answer = &answer[message.length..],
            // A server that sends more than it said is broken.
            _ => return (message.length == answer.len()).then_some(message),
        }
    }
}

/// Whether another server is asked instead, or the call failed.
fn may_fail(answer: &Message) -> bool {
    let is_call = answer.has("grpc-status")
        || answer.values("content-type").any(|kind| kind.starts_with("application/grpc"));
    is_call || answer.status() >= 500 || (answer.status() == 429 && answer.has("retry-after"))
}

fn compare(sent: &Message, received: &Message) {
    assert_eq!(sent.status(), received.status());
    assert_eq!(String::from_utf8_lossy(&sent.body), String::from_utf8_lossy(&received.body));
    let kept = |of: &Message| {
        let mut kept: Vec<_> =
            of.headers.iter().filter(|(name, _)| sent.is_end_to_end(name)).cloned().collect();
        kept.sort();
        kept
    };
    assert_eq!(kept(sent), kept(received));
}
