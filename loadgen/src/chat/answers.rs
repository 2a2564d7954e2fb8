//! The answers of a run, and their figures in the report.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use parm_workload::chat::Tokens;
use schemars::JsonSchema;
use serde::Serialize;

use crate::recorder::{self, Sample};
use crate::report::Times;
use crate::run::Run;

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Time from the intended send time to the end of the answer.
    pub(crate) latency: Duration,
    /// Mean time of the tokens after the first; `None` for a single token.
    pub(crate) per_token: Option<Duration>,
    /// Tokens as the server reports them, otherwise as they were meant and seen.
    pub(crate) tokens: Tokens,
    /// Times between contents.
    pub(crate) gaps: Vec<Duration>,
}

/// The counted answers of a run.
#[derive(Debug, Default)]
pub struct Answers {
    /// With their intended send times.
    answers: Vec<(Duration, Answer)>,
    gaps: recorder::Times,
    /// Requests that were sent twice, those of the warm-up included.
    pub(crate) repeated: u64,
}

/// The figures of chats. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChatReport {
    /// Requests that were sent twice, because a kept connection ended without an answer; those of the warm-up included. The
    /// server may have run both.
    pub repeated: u64,
    /// Requests with a whole answer.
    pub answered: usize,
    /// Tokens of the prompts that were answered.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Tokens of prompts per second, until the last answer.
    pub prompt_tokens_per_second: f64,
    /// Tokens of answers per second, until the last answer.
    pub output_tokens_per_second: f64,
    /// Time per output token of each answer: the mean time of the tokens after its first.
    pub tpot: Times,
    /// Time between tokens of answers. It has no intervals: tokens of an iteration are not independent.
    pub itl: Times,
    /// End-to-end latency of all requests, from the intended send time. A failed request is as late as the deadline.
    pub latency: Times,
}

impl Answers {
    pub(crate) fn add(&mut self, intended: Duration, mut answer: Answer) {
        std::mem::take(&mut answer.gaps).into_iter().for_each(|gap| self.gaps.record(gap));
        self.answers.push((intended, answer));
    }

    /// Orders the answers as the samples of the same run: both are recorded together and sorted by their intended times.
    pub(crate) fn in_order(mut self) -> Self {
        self.answers.sort_by_key(|(intended, _)| *intended);
        self
    }

    /// When the last answer ended, since the start of the run.
    pub(crate) fn end(&self) -> Duration {
        let ends = self.answers.iter().map(|(intended, answer)| *intended + answer.latency);
        ends.max().unwrap_or_default()
    }

    /// The samples of its run, each with its answer.
    fn of<'a>(&'a self, samples: &'a [Sample]) -> impl Iterator<Item = (&'a Sample, Option<&'a Answer>)> {
        let mut answers = self.answers.iter().map(|(_, answer)| answer);
        samples
            .iter()
            .map(move |sample| (sample, sample.outcome.is_answer().then(|| answers.next()).flatten()))
    }
}

impl ChatReport {
    pub(crate) fn of(run: &Run, answers: &Answers, busy: Duration) -> Self {
        let all = || answers.answers.iter().map(|(_, answer)| answer);
        let prompt_tokens = all().map(|answer| u64::from(answer.tokens.prompt)).sum();
        let output_tokens = all().map(|answer| u64::from(answer.tokens.output)).sum();
        let per_second = |count: u64| if busy.is_zero() { 0.0 } else { count as f64 / busy.as_secs_f64() };
        let latencies = answers.of(&run.samples);
        let latencies =
            latencies.map(|(sample, answer)| answer.map_or(sample.latency, |answer| answer.latency));
        Self {
            repeated: answers.repeated,
            answered: answers.answers.len(),
            prompt_tokens,
            output_tokens,
            prompt_tokens_per_second: per_second(prompt_tokens),
            output_tokens_per_second: per_second(output_tokens),
            tpot: Times::of(all().filter_map(|answer| answer.per_token)),
            itl: Times::read(&answers.gaps),
            latency: Times::of(latencies),
        }
    }
}

impl fmt::Display for ChatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompt_tokens, output_tokens, repeated, .. } = self;
        let (prompts, outputs) = (self.prompt_tokens_per_second, self.output_tokens_per_second);
        writeln!(
            f,
            "tokens      {prompt_tokens} of prompts, {prompts:.1}/s; {output_tokens} of answers, {outputs:.1}/s"
        )?;
        if *repeated > 0 {
            writeln!(f, "repeated    {repeated} sent twice: a kept connection ended without an answer")?;
        }
        for (name, times, has_intervals) in [
            ("time per output token after the first (TPOT)", &self.tpot, true),
            ("time between tokens (ITL), without intervals", &self.itl, false),
            ("end-to-end latency", &self.latency, true),
        ] {
            if times.count > 0 {
                writeln!(f, "\n{name}")?;
                times.write(f, has_intervals)?;
            }
        }
        writeln!(f)
    }
}

/// Writes the samples of a run as CSV, one per line, times in microseconds. Only answers have tokens.
pub fn write(run: &Run, mut to: impl Write) -> io::Result<()> {
    writeln!(to, "intended_us,ttft_us,latency_us,lag_us,prompt_tokens,output_tokens,outcome")?;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    for (sample, answer) in run.chats.iter().flat_map(|answers| answers.of(&run.samples)) {
        let Sample { intended, latency: first, lag, outcome } = sample;
        let latency = answer.map_or(first, |answer| &answer.latency);
        let [intended, first, latency, lag] = [intended, first, latency, lag].map(|time| micros(*time));
        write!(to, "{intended:.1},{first:.1},{latency:.1},{lag:.1},")?;
        match answer {
            Some(Answer { tokens: Tokens { prompt, output }, .. }) => write!(to, "{prompt},{output}")?,
            None => write!(to, ",")?,
        }
        writeln!(to, ",{}", outcome.name())?;
    }
    to.flush()
}
