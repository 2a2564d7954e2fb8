//! Any bytes from a client whose requests are passed on.
//!
//! The connection ends, what comes back is HTTP, and the server gets requests of one form only: a length or no body, no header of
//! the client's connection, one host, and no more requests than the client sent.

use super::passage::{Passage, lines};

/// Runs the target.
pub fn run(data: &[u8]) {
    thread_local!(static PASSAGE: Passage = Passage::start());
    let (came, heard) = PASSAGE.with(|passage| passage.send(data, None));
    let over_http2 = came.get(3..5) == Some(&[4, 0]);
    assert!(
        came.is_empty() || over_http2 || came.starts_with(b"HTTP/1."),
        "{:?}",
        String::from_utf8_lossy(&came)
    );
    let sent = data.windows(8).filter(|eight| eight.eq_ignore_ascii_case(b" HTTP/1.")).count();
    assert!(over_http2 || heard.len() <= sent, "{} requests became {}", sent, heard.len());
    for request in heard {
        let shown = String::from_utf8_lossy(&request);
        for name in
            ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
        {
            assert!(lines(&request, name).is_empty(), "{name} in {shown:?}");
        }
        assert!(lines(&request, "content-length").len() <= 1, "{shown:?}");
        assert_eq!(lines(&request, "host").len(), 1, "{shown:?}");
    }
}
