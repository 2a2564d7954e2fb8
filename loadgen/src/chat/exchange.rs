//! One request, and the times of its tokens.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_workload::chat::Tokens;

use super::api::Api;
use super::events::{ChatEvent, EventReader, Unreadable, usage_of};
use super::{Incoming, Wire};

/// The reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The connection could not be opened, or broke before the answer began.
    Connection,
    /// The server answered with another status than 200.
    Status(u16),
    /// The server reported an error within its answer.
    Event,
    /// The answer ended before its regular end.
    CutOff,
    /// The answer is not in the expected form.
    Unreadable,
    /// The answer has no content.
    Empty,
    /// The answer was not complete by the deadline.
    Timeout,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureKind::Connection => f.write_str("connection"),
            FailureKind::Status(status) => write!(f, "status {status}"),
            FailureKind::Event => f.write_str("error in the stream"),
            FailureKind::CutOff => f.write_str("cut off"),
            FailureKind::Unreadable => f.write_str("unreadable"),
            FailureKind::Empty => f.write_str("no content"),
            FailureKind::Timeout => f.write_str("timeout"),
        }
    }
}

/// A failure with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChatFailure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
}

/// The progress of an exchange, which a timeout keeps.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When the first content arrived.
    pub(super) first: Option<Instant>,
    /// When the latest content arrived.
    pub(super) latest: Option<Instant>,
    /// Times between contents.
    pub(super) gaps: Vec<Duration>,
    /// Chunks with content.
    pub(super) contents: u32,
    /// Tokens of the prompt and of the answer, as the server reports them.
    pub(super) usage: Option<(u32, u32)>,
    finished: bool,
}

/// Most bytes of an answer in one piece: 2,048 embeddings of 4,096 numbers.
const LARGEST_ANSWER: usize = 256 << 20;
/// Most bytes of an error that are read.
const LARGEST_ERROR: usize = 64 << 10;
/// Most characters of an error that are kept.
const SHOWN: usize = 300;

impl Seen {
    /// Sends a request and reads its answer to the end.
    pub(super) async fn follow(&mut self, wire: &dyn Wire, api: Api, body: Bytes) -> Result<(), ChatFailure> {
        let broken = |message| ChatFailure { kind: FailureKind::Connection, message };
        let mut answer = wire.post(api.path(), body).await.map_err(broken)?;
        if answer.status() != 200 {
            let kind = FailureKind::Status(answer.status());
            let text = whole(&mut *answer, LARGEST_ERROR).await.unwrap_or_default();
            return Err(ChatFailure { kind, message: shown(&String::from_utf8_lossy(&text)) });
        }
        if api.streams() { self.stream(&mut *answer).await } else { self.piece(&mut *answer).await }
    }

    async fn stream(&mut self, answer: &mut dyn Incoming) -> Result<(), ChatFailure> {
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        while let Some(bytes) = answer.chunk().await.map_err(cut_off)? {
            let now = Instant::now();
            reader.push(&bytes, &mut events).map_err(unreadable)?;
            events.drain(..).try_for_each(|event| self.note(event, now))?;
        }
        if !self.finished {
            return Err(cut_off("the stream ended without a reason to finish and without [DONE]".into()));
        }
        if self.first.is_none() {
            return Err(ChatFailure {
                kind: FailureKind::Empty,
                message: "the stream had no content".into(),
            });
        }
        Ok(())
    }

    /// An answer in one piece is its own first token.
    async fn piece(&mut self, answer: &mut dyn Incoming) -> Result<(), ChatFailure> {
        let bytes = whole(answer, LARGEST_ANSWER).await?;
        let now = Instant::now();
        self.usage = usage_of(&bytes).map_err(unreadable)?;
        (self.first, self.latest) = (Some(now), Some(now));
        Ok(())
    }

    fn note(&mut self, event: ChatEvent, now: Instant) -> Result<(), ChatFailure> {
        match event {
            ChatEvent::Content => {
                if let Some(before) = self.latest.replace(now) {
                    self.gaps.push(now.saturating_duration_since(before));
                }
                self.first.get_or_insert(now);
                self.contents = self.contents.saturating_add(1);
            }
            ChatEvent::Finish | ChatEvent::Done => self.finished = true,
            ChatEvent::Usage(prompt, output) => self.usage = Some((prompt, output)),
            ChatEvent::Failed(message) => {
                return Err(ChatFailure { kind: FailureKind::Event, message: shown(&message) });
            }
        }
        Ok(())
    }

    /// The numbers of tokens, as the server reports them or as they were meant and seen.
    pub(super) fn tokens(&self, meant: Tokens) -> Tokens {
        let (prompt, output) = self.usage.unwrap_or((meant.prompt, self.contents));
        Tokens { prompt, output }
    }

    /// The mean time of the tokens after the first.
    pub(super) fn per_token(&self, output: u32) -> Option<Duration> {
        let took = self.latest?.saturating_duration_since(self.first?);
        (output > 1 && self.contents > 1).then(|| took / (output - 1))
    }
}

/// Collects an answer of limited size.
async fn whole(answer: &mut dyn Incoming, most: usize) -> Result<Vec<u8>, ChatFailure> {
    let mut all = Vec::new();
    while let Some(bytes) = answer.chunk().await.map_err(cut_off)? {
        if all.len() + bytes.len() > most {
            return Err(unreadable(Unreadable(format!("the answer has more than {most} bytes"))));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

fn cut_off(message: String) -> ChatFailure {
    ChatFailure { kind: FailureKind::CutOff, message }
}

fn unreadable(Unreadable(message): Unreadable) -> ChatFailure {
    ChatFailure { kind: FailureKind::Unreadable, message: shown(&message) }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
