//! Reads server-sent events of OpenAI's streams, and tells content from chunks without any.

use serde::Deserialize;
use serde_json::Value;

/// The meaning of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatEvent {
    /// A part of the answer.
    Content,
    /// The reason why the answer ends.
    Finish,
    /// The numbers of tokens of the prompt and of the answer.
    Usage(u32, u32),
    /// The server failed after it had begun to answer.
    Failed(String),
    /// `[DONE]`.
    Done,
}

/// An unreadable stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) String);

/// A reader of the bytes of a stream, in pieces of any length.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// A line without its end yet.
    line: Vec<u8>,
    /// The data of an event that may have more lines.
    data: String,
}

/// Longest event. Chunks of a stream are small; a larger one is a mistake of the server.
const LONGEST: usize = 1 << 20;

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    text: Option<String>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
}

impl EventReader {
    /// Reads further bytes, and appends the events that are complete.
    pub(super) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<ChatEvent>) -> Result<(), Unreadable> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.line.is_empty() {
                self.line(line, events)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line(&whole, events)?;
            }
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > LONGEST { Err(too_long()) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8], events: &mut Vec<ChatEvent>) -> Result<(), Unreadable> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return meanings(data.trim(), events);
        }
        // Comments and fields other than data do not matter.
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let data = std::str::from_utf8(data).map_err(|_| Unreadable("an event is not UTF-8".into()))?;
        if self.data.len() + data.len() > LONGEST {
            return Err(too_long());
        }
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        Ok(())
    }
}

fn too_long() -> Unreadable {
    Unreadable(format!("an event has more than {LONGEST} bytes"))
}

fn meanings(data: &str, events: &mut Vec<ChatEvent>) -> Result<(), Unreadable> {
    if data.is_empty() {
        return Ok(());
    }
    if data == "[DONE]" {
        events.push(ChatEvent::Done);
        return Ok(());
    }
    let chunk: Chunk = serde_json::from_str(data).map_err(|error| Unreadable(error.to_string()))?;
    if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
        let message = error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
        events.push(ChatEvent::Failed(message));
    }
    for Choice { delta, text, finish_reason } in &chunk.choices {
        let texts = [&delta.content, &delta.reasoning_content, &delta.reasoning, text];
        let said = texts.into_iter().flatten().any(|text| !text.is_empty());
        if said || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) {
            events.push(ChatEvent::Content);
        }
        if finish_reason.is_some() {
            events.push(ChatEvent::Finish);
        }
    }
    if let Some(Usage { prompt_tokens, completion_tokens }) = chunk.usage {
        events.push(ChatEvent::Usage(prompt_tokens, completion_tokens));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ChatEvent::{Content, Done, Failed, Finish};
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<ChatEvent>, Unreadable> {
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        pieces.iter().try_for_each(|piece| reader.push(piece, &mut events))?;
        Ok(events)
    }

    const STREAM: &str = ": keep-alive\n\n\
        data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data:\n\n\
        event: chunk\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n\
        data:{\"choices\":[{\"text\":\"b\"}]}\n\n\
        data: {\"choices\":\ndata: [{\"delta\":{\"reasoning_content\":\"c\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,\"total_tokens\":8}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn only_chunks_with_content_count_as_tokens() {
        let wanted = [Content, Content, Content, Finish, ChatEvent::Usage(5, 3), Done];
        assert_eq!(read(&[STREAM.as_bytes()]).unwrap(), wanted);
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes).unwrap(), wanted, "byte by byte");
    }

    #[test]
    fn errors_within_a_stream_are_events() {
        let event = b"data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
        assert_eq!(read(&[event]).unwrap(), [Failed("out of memory".into())]);
        assert_eq!(read(&[b"data: {\"error\":\"gone\"}\n\n"]).unwrap(), [Failed("\"gone\"".into())]);
        assert_eq!(read(&[b"data: {\"error\":null,\"choices\":[]}\n\n"]).unwrap(), []);
    }

    #[test]
    fn garbage_is_unreadable() {
        for garbage in [&b"data: {\n\n"[..], b"data: \xff\n\n", b"data: 5\n\n", b"data: {\"choices\":5}\n\n"]
        {
            assert!(read(&[garbage]).is_err(), "{garbage:?}");
        }
        let long = vec![b'x'; 700_000];
        assert!(read(&[&long, &long]).is_err(), "a line without an end");
        let line = [b"data: ", &long[..], b"\n"].concat();
        assert!(read(&[&line, &line]).is_err(), "an event without an end");
    }
}
