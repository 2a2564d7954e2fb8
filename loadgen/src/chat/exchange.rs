//! One request, and the times of its tokens.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_workload::chat::Tokens;
use tokio::time::timeout_at;

use super::events::{ChatEvent, EventReader, Unreadable};
use super::{Answer, Chats, Wire};
use crate::failures::Failure;
use crate::live::Ended;
use crate::outcome::Outcome;
use crate::run::Exchange;

impl Chats {
    /// Sends a request. Half an answer is none, so a timeout after the first token is as late as the deadline.
    pub(crate) async fn exchange(&self, exchange: Exchange) -> Ended {
        let (meant, body) = (self.maker.size(exchange.index), self.maker.body(exchange.index));
        let Exchange { intended, deadline, counted, .. } = exchange;
        let mut seen = Seen::default();
        let followed = timeout_at((intended + deadline).into(), seen.follow(&*self.wire, body)).await;
        let latency = intended.elapsed();
        let late = |_| Err(failure("timeout", format!("no whole answer within {deadline:?}")));
        let first = match followed.unwrap_or_else(late) {
            Ok(first) => first.saturating_duration_since(intended),
            Err(failure) => return exchange.unanswered(latency, Outcome::Failed, Some(failure)),
        };
        let (prompt, output) = seen.usage.unwrap_or((meant.prompt, seen.contents));
        let (per_token, tokens) = (seen.per_token(output), Tokens { prompt, output });
        let answer = Answer { latency, per_token, tokens, gaps: seen.gaps };
        let sample = exchange.sample(first, Outcome::Exact);
        Ended { sample, counted, rows: Vec::new(), chat: Some(answer), failure: None }
    }
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

/// Most bytes of an error that are read.
const LARGEST_ERROR: usize = 64 << 10;
/// Most characters of an error that are kept.
const SHOWN: usize = 300;

impl Seen {
    /// Sends a request and reads its answer to the end. Returns when the first content arrived.
    pub(super) async fn follow(&mut self, wire: &dyn Wire, body: Bytes) -> Result<Instant, Failure> {
        let broken = |message| failure("connection", message);
        let cut_off = |message| failure("cut off", message);
        let mut answer = wire.post(body).await.map_err(broken)?;
        if answer.status() != 200 {
            let mut text = Vec::new();
            while let Ok(Some(bytes)) = answer.chunk().await
                && text.len() < LARGEST_ERROR
            {
                text.extend_from_slice(&bytes);
            }
            let reason = format!("status {}", answer.status());
            return Err(failure(reason, String::from_utf8_lossy(&text)));
        }
        let (mut reader, mut events) = (EventReader::default(), Vec::new());
        while let Some(bytes) = answer.chunk().await.map_err(cut_off)? {
            let now = Instant::now();
            reader.push(&bytes, &mut events).map_err(|Unreadable(message)| failure("unreadable", message))?;
            events.drain(..).try_for_each(|event| self.note(event, now))?;
        }
        if !self.finished {
            return Err(cut_off("the stream ended without a reason to finish and without [DONE]".into()));
        }
        self.first.ok_or_else(|| failure("no content", "the stream had no content"))
    }

    fn note(&mut self, event: ChatEvent, now: Instant) -> Result<(), Failure> {
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
            ChatEvent::Failed(message) => return Err(failure("error in the stream", message)),
        }
        Ok(())
    }

    /// The mean time of the tokens after the first.
    fn per_token(&self, output: u32) -> Option<Duration> {
        let took = self.latest?.saturating_duration_since(self.first?);
        (output > 1 && self.contents > 1).then(|| took / (output - 1))
    }
}

fn failure(reason: impl Into<Cow<'static, str>>, message: impl AsRef<str>) -> Failure {
    Failure { reason: reason.into(), message: message.as_ref().chars().take(SHOWN).collect() }
}
