//! Load for servers of language models, with times to the first token and between tokens.
//!
//! The figures are those of vLLM's benchmark and MLPerf: time to first token (TTFT), time per output token after the first
//! (TPOT), time between tokens (ITL), and end-to-end latency. All that begin with a request count from its intended time.
//!
//! The first token is the first chunk with content: comments, events without data and chunks that only name a role do not
//! count, since a server can send them before it has computed anything.
//!
//! A run, its records and its report are those of queries ([`crate::run`]), with the time to the first token as the
//! latency. `events` reads streams, `answers` has the other figures. This crate opens no connection: the caller supplies the
//! [`Wire`], so that crates without a network can use the statistics.

mod answers;
mod events;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parm_protocol::client::BoxFuture;
use parm_random::Random;
use parm_workload::chat::{Tokens, word};
use serde_json::{Map, Value, json};
use tokio::time::timeout_at;

pub(crate) use answers::Answer;
pub use answers::{Answers, ChatReport, write};
use events::{ChatEvent, EventReader, Unreadable};

use crate::failures::Failure;
use crate::live::Ended;
use crate::outcome::Outcome;
use crate::run::Exchange;

/// The path of chats.
pub const PATH: &str = "/v1/chat/completions";

/// Chats and the server for them.
#[derive(Clone)]
pub struct Chats {
    /// The connection to the server.
    pub wire: Arc<dyn Wire>,
    /// Makes the requests.
    pub maker: Maker,
}

/// Sends requests to one server.
pub trait Wire: Send + Sync {
    /// Sends a POST request with a JSON body to [`PATH`], and waits for the head of the response. An error names its cause.
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>>;

    /// Returns how many requests it sent twice, because a kept connection ended without an answer.
    fn repeated(&self) -> u64;
}

/// A response that may still be arriving.
pub trait Incoming: Send {
    /// The HTTP status.
    fn status(&self) -> u16;

    /// The next bytes of the body; `None` after its regular end.
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, String>>;
}

/// Makes the requests of a run.
#[derive(Clone, Debug)]
pub struct Maker {
    /// The model.
    pub model: String,
    /// The size of each request; the last one for all further requests.
    pub sizes: Arc<[Tokens]>,
    /// Seed of the texts.
    pub seed: u64,
    /// Further fields of each request, such as `ignore_eos` for vLLM. They replace the usual ones.
    pub extra: Map<String, Value>,
}

const TEXT: u64 = 0x7E87;

impl Maker {
    /// The size of request number `index`.
    fn size(&self, index: usize) -> Tokens {
        let size = self.sizes.get(index).or(self.sizes.last());
        size.copied().unwrap_or(Tokens { prompt: 1, output: 1 })
    }

    /// The body of request number `index`. Texts differ from the first word on, so that no cache of prefixes helps.
    fn body(&self, index: usize) -> Bytes {
        let Tokens { prompt, output } = self.size(index);
        let seed = Random::of(self.seed, [TEXT, index as u64]).bits();
        let text: String = (0..prompt.max(1)).flat_map(|number| [word(seed, number), " "]).collect();
        let mut body = json!({
            "model": self.model, "messages": [{ "role": "user", "content": text }], "max_tokens": output.max(1),
            "stream": true, "stream_options": { "include_usage": true },
        });
        for (name, value) in &self.extra {
            body[name.as_str()] = value.clone();
        }
        Bytes::from(body.to_string())
    }
}

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
struct Seen {
    /// When the first content arrived.
    first: Option<Instant>,
    /// When the latest content arrived.
    latest: Option<Instant>,
    /// Times between contents.
    gaps: Vec<Duration>,
    /// Chunks with content.
    contents: u32,
    /// Tokens of the prompt and of the answer, as the server reports them.
    usage: Option<(u32, u32)>,
    finished: bool,
}

/// Most bytes of an error that are read.
const LARGEST_ERROR: usize = 64 << 10;
/// Most characters of an error that are kept.
const SHOWN: usize = 300;

impl Seen {
    /// Sends a request and reads its answer to the end. Returns when the first content arrived.
    async fn follow(&mut self, wire: &dyn Wire, body: Bytes) -> Result<Instant, Failure> {
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
