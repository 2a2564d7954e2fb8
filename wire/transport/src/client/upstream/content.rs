//! The first content of an answer: before it a copy elsewhere may still win, after it the answer is this server's.
//!
//! Problem: a chat server sends its head, a comment or a role long before its first token. A client that waits for the
//! first token gains nothing from them, and once something was passed on, no other server's answer may follow.
//!
//! Choice: an answer of stated length, or of JSON, XML or HTML, begins when it is whole or longer than a megabyte. A stream of
//! events begins with its first event that has content, gRPC with the first message, and any other body with its first bytes.
//!
//! Rejected: the head (it comes before the work); a fixed number of bytes (roles and comments have any length).

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;

/// Largest answer that is collected whole: it can still be replaced when its server fails in its middle.
pub(super) const LARGEST_WHOLE: usize = 1 << 20;

/// Most bytes of a stream that are searched for content.
pub(super) const LONGEST_SEARCH: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// A document: its end is its content.
    Document,
    /// Server-sent events.
    Events,
    /// Messages of gRPC, then trailers with the status.
    Messages,
    /// Bytes that mean something as soon as they arrive.
    Bytes,
}

impl BodyForm {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let readable = matches!(text(CONTENT_ENCODING), "" | "identity");
        match &*kind {
            _ if parm_protocol::is_grpc(headers) => Self::Messages,
            _ if headers.contains_key(CONTENT_LENGTH) => Self::Document,
            "text/event-stream" if readable => Self::Events,
            "application/x-ndjson" | "application/ndjson" => Self::Bytes,
            _ if kind.ends_with("json") || kind.ends_with("xml") || kind == "text/html" => Self::Document,
            _ => Self::Bytes,
        }
    }

    /// Whether the beginning of a body has content.
    pub(super) fn has_content(self, body: &[u8]) -> bool {
        match self {
            Self::Document => body.len() > LARGEST_WHOLE,
            Self::Messages => parm_protocol::has_message(body) || body.len() > LARGEST_WHOLE,
            Self::Bytes => !body.is_empty(),
            Self::Events => lines(body).any(is_content) || body.len() > LONGEST_SEARCH,
        }
    }
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = body.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    body[..end].split(|byte| matches!(byte, b'\n' | b'\r'))
}

/// Whether a line of an event has content: `data:` with more than a role. Some servers, such as BentoML, send plain text under
/// the type of events: any line that is not part of an event is content as well.
fn is_content(line: &[u8]) -> bool {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
        return !is_of_an_event(line);
    };
    if data.is_empty() {
        return false;
    }
    match serde_json::from_slice::<Value>(data) {
        Ok(Value::Object(object)) => match object.get("choices").and_then(Value::as_array) {
            Some(choices) => choices.is_empty() || choices.iter().any(is_chosen),
            None => true,
        },
        // Text, or `[DONE]`.
        _ => true,
    }
}

/// Whether a line without data is empty, a comment or a field of an event.
fn is_of_an_event(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    matches!(name, b"" | b"event" | b"id" | b"retry" | b"data")
}

/// Whether a choice of a chunk has text, a call, or a reason why it ended.
fn is_chosen(choice: &Value) -> bool {
    let ended = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
    let text = choice.get("text").is_some_and(is_something);
    let delta = choice.get("delta").and_then(Value::as_object);
    let said = |delta: &serde_json::Map<String, Value>| {
        delta.iter().any(|(name, value)| name != "role" && is_something(value))
    };
    ended || text || delta.is_some_and(said)
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(headers: &[(&'static str, &'static str)]) -> BodyForm {
        BodyForm::of(
            &headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
        )
    }

    #[test]
    fn form_follows_from_the_headers() {
        let json = ("content-type", "application/json");
        let events = ("content-type", "text/event-stream; charset=utf-8");
        assert_eq!(form(&[json]), BodyForm::Document);
        assert_eq!(form(&[events]), BodyForm::Events);
        assert_eq!(form(&[("content-type", "application/x-ndjson")]), BodyForm::Bytes);
        assert_eq!(form(&[("content-type", "text/plain")]), BodyForm::Bytes);
        assert_eq!(form(&[("content-type", "text/plain"), ("content-length", "5")]), BodyForm::Document);
        assert_eq!(
            form(&[("content-type", "application/grpc+proto"), ("content-length", "5")]),
            BodyForm::Messages
        );
        assert_eq!(form(&[events, ("content-encoding", "gzip")]), BodyForm::Bytes, "it cannot be read");
        assert_eq!(form(&[]), BodyForm::Bytes);
    }

    #[test]
    fn roles_comments_and_empty_data_are_no_content() {
        let role = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
        let empty = [
            ": ping\n\n",
            "event: open\nid: 4\nretry: 9\n\n",
            "data:\n\n",
            "data: \r\n\r\n",
            "data\n\n",
            "id\n",
        ];
        for text in empty {
            assert!(!BodyForm::Events.has_content(text.as_bytes()), "{text:?}");
        }
        assert!(!BodyForm::Events.has_content(format!("{role}\n\n").as_bytes()));
        let content = [
            r#"data: {"choices":[{"delta":{"content":"a"}}]}"#,
            r#"data: {"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
            r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[{"text":"a"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":1}}"#,
            r#"data: {"error":{"message":"no"}}"#,
            "data: [DONE]",
            "data:x",
            "plain text",
            "{}",
        ];
        for text in content {
            assert!(!BodyForm::Events.has_content(text.as_bytes()), "{text}: the line is not complete");
            assert!(
                BodyForm::Events.has_content(format!(": ping\n\n{role}\n\n{text}\n").as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn call_begins_with_its_first_whole_message() {
        let message = b"\0\0\0\0\x03abc";
        for length in 0..message.len() {
            assert!(!BodyForm::Messages.has_content(&message[..length]), "{length} bytes");
        }
        assert!(BodyForm::Messages.has_content(message));
        assert!(BodyForm::Messages.has_content(b"\0\0\0\0\0"), "a message may be empty");
        let huge = [b"\0\xff\xff\xff\xff".as_slice(), &vec![0; LARGEST_WHOLE]].concat();
        assert!(!BodyForm::Messages.has_content(&huge[..LARGEST_WHOLE]));
        assert!(BodyForm::Messages.has_content(&huge), "the search has an end");
    }

    #[test]
    fn content_is_searched_in_a_bounded_part() {
        let comments = ": ping\n\n".repeat(LONGEST_SEARCH / 8);
        assert!(!BodyForm::Events.has_content(comments.as_bytes()));
        assert!(BodyForm::Events.has_content((comments + ":").as_bytes()));
        assert!(!BodyForm::Document.has_content(&vec![b' '; LARGEST_WHOLE]));
        assert!(BodyForm::Document.has_content(&vec![b' '; LARGEST_WHOLE + 1]));
        assert!(BodyForm::Bytes.has_content(b"x") && !BodyForm::Bytes.has_content(b""));
    }
}
