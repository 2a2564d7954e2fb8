//! The record of one request to a server of a language model.

use std::io::{self, Write};
use std::time::Duration;

use super::FailureKind;

/// One request's end. Times begin at its intended send time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChatSample {
    /// Intended send time since the start of the run.
    pub intended: Duration,
    /// How late it was sent.
    pub lag: Duration,
    /// Time to the first content; at least the deadline if the request failed.
    pub first: Duration,
    /// Time to the end of the answer; at least the deadline if the request failed.
    pub latency: Duration,
    /// Mean time of the tokens after the first; `None` for failures and answers of one token.
    pub per_token: Option<Duration>,
    /// Tokens of the prompt, as the server reports them, otherwise as they were meant.
    pub prompt_tokens: u32,
    /// Tokens of the answer, as the server reports them, otherwise chunks with content.
    pub output_tokens: u32,
    /// Why it failed.
    pub failure: Option<FailureKind>,
    /// Whether it was never sent, because too many were unanswered.
    pub dropped: bool,
}

impl ChatSample {
    /// Whether the whole answer arrived.
    pub fn is_answered(&self) -> bool {
        self.failure.is_none() && !self.dropped
    }

    fn outcome(&self) -> String {
        match self.failure {
            Some(failure) => failure.to_string(),
            None if self.dropped => "dropped".to_owned(),
            None => "answered".to_owned(),
        }
    }
}

/// Writes samples as CSV, one per line in the given order, times in microseconds.
pub fn write(samples: &[ChatSample], mut to: impl Write) -> io::Result<()> {
    writeln!(to, "intended_us,ttft_us,latency_us,lag_us,prompt_tokens,output_tokens,outcome")?;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    for sample in samples {
        let [intended, first, latency, lag] =
            [sample.intended, sample.first, sample.latency, sample.lag].map(micros);
        let (prompt, output) = (sample.prompt_tokens, sample.output_tokens);
        writeln!(
            to,
            "{intended:.1},{first:.1},{latency:.1},{lag:.1},{prompt},{output},{}",
            sample.outcome()
        )?;
    }
    to.flush()
}
