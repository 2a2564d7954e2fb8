//! The report of a run against a server of a language model, for people and for programs.
//!
//! `docs/load-openai.schema.json` is generated from these types; a test compares them.

mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use super::ChatSample;
use super::run::ChatRun;
use crate::report::{MET, QUANTILES, Quantile, Threshold, Validity, ms, quantile, threshold, validity};
use crate::requirement::Requirement;

/// A run, judged. Times are milliseconds unless a name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChatReport {
    /// The configuration of the run.
    pub setting: ChatSetting,
    /// Length of the counted part in seconds.
    pub seconds: f64,
    /// Seconds from its start to the end of its last answer.
    pub busy_seconds: f64,
    /// Requests that should have been sent in it.
    pub offered: usize,
    /// Requests that were sent.
    pub sent: usize,
    /// Requests not sent because too many were without an answer.
    pub dropped: usize,
    /// Requests that were sent twice, because a kept connection ended without an answer; those of the warm-up included. The
    /// server may have run both.
    pub repeated: u64,
    /// Requests with a whole answer.
    pub answered: usize,
    /// Requests per second that should have been sent.
    pub offered_per_second: f64,
    /// Whole answers per second, until the last answer.
    pub answered_per_second: f64,
    /// Tokens of the prompts that were answered.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Tokens of prompts per second, until the last answer.
    pub prompt_tokens_per_second: f64,
    /// Tokens of answers per second, until the last answer.
    pub output_tokens_per_second: f64,
    /// Failed requests by their reason; only reasons that occurred.
    pub failures: Vec<FailureCount>,
    /// Time to first token of all requests, from the intended send time. A failed request is as late as the deadline.
    pub ttft: Times,
    /// Time per output token of each answer: the mean time of the tokens after its first.
    pub tpot: Times,
    /// Time between tokens, of all tokens. It has no intervals: tokens of an iteration are not independent.
    pub itl: Times,
    /// End-to-end latency of all requests, from the intended send time. A failed request is as late as the deadline.
    pub latency: Times,
    /// Whether the run tested what it was meant to. The lag is compared with the time to first token.
    pub validity: Validity,
    /// The requested thresholds, on the time to first token.
    pub requirements: Vec<Threshold>,
    /// The first failure's message.
    pub first_failure: Option<String>,
}

/// The configuration of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ChatSetting {
    /// The server.
    pub url: String,
    /// The model.
    pub model: String,
    /// `chat`, `completions` or `embeddings`.
    pub api: String,
    /// The shape of arrivals, or the trace.
    pub arrivals: String,
    /// Tokens of each prompt; absent for a trace.
    pub prompt_tokens: Option<u32>,
    /// Tokens of each answer; absent for a trace.
    pub output_tokens: Option<u32>,
    /// How many times as fast a trace was replayed; absent without one.
    pub speed: Option<f64>,
    /// Seed of arrivals and texts.
    pub seed: u64,
    /// Seconds of warm-up, whose requests are sent and not counted.
    pub warm_up_seconds: f64,
    /// Milliseconds that a whole answer may take.
    pub deadline_ms: f64,
    /// Share of the requests that may fail before the run is invalid.
    pub allow_failed: f64,
}

/// Requests that failed for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FailureCount {
    /// `connection`, `status N`, `error in the stream`, `cut off`, `unreadable`, `no content` or `timeout`.
    pub kind: String,
    /// How many.
    pub requests: u64,
}

/// Quantiles of one kind of time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Times {
    /// Number of times.
    pub count: u64,
    /// Their quantiles.
    pub quantiles: Vec<Quantile>,
    /// Mean; absent without any.
    pub mean_ms: Option<f64>,
    /// Longest; absent without any.
    pub max_ms: Option<f64>,
}

impl ChatReport {
    /// Judges a run.
    pub fn of(run: &ChatRun, setting: ChatSetting, requirements: &[Requirement]) -> Self {
        let (firsts, samples) = (&run.firsts, &run.samples);
        let answered: Vec<&ChatSample> = samples.iter().filter(|sample| sample.is_answered()).collect();
        let tokens = |of: fn(&ChatSample) -> u32| answered.iter().map(|sample| u64::from(of(sample))).sum();
        let (prompt_tokens, output_tokens): (u64, u64) =
            (tokens(|sample| sample.prompt_tokens), tokens(|sample| sample.output_tokens));
        let per_second = |count: f64, length: Duration| {
            if length.is_zero() { 0.0 } else { count / length.as_secs_f64() }
        };
        let mut failures: BTreeMap<_, u64> = BTreeMap::new();
        for kind in samples.iter().filter_map(|sample| sample.failure) {
            *failures.entry(kind).or_default() += 1;
        }
        let failures =
            failures.into_iter().map(|(kind, requests)| FailureCount { kind: kind.to_string(), requests });
        Self {
            seconds: firsts.length.as_secs_f64(),
            busy_seconds: run.busy.as_secs_f64(),
            offered: firsts.offered,
            sent: samples.iter().filter(|sample| !sample.dropped).count(),
            dropped: firsts.dropped,
            repeated: run.repeated,
            answered: answered.len(),
            offered_per_second: per_second(firsts.offered as f64, firsts.length),
            answered_per_second: per_second(answered.len() as f64, run.busy),
            prompt_tokens,
            output_tokens,
            prompt_tokens_per_second: per_second(prompt_tokens as f64, run.busy),
            output_tokens_per_second: per_second(output_tokens as f64, run.busy),
            failures: failures.collect(),
            ttft: Times::of(samples.iter().map(|sample| sample.first)),
            tpot: Times::of(samples.iter().filter_map(|sample| sample.per_token)),
            itl: Times::read(&run.gaps),
            latency: Times::of(samples.iter().map(|sample| sample.latency)),
            validity: validity(firsts, setting.allow_failed),
            requirements: requirements.iter().map(|requirement| threshold(requirement, firsts)).collect(),
            first_failure: run.first_failure.clone(),
            setting,
        }
    }

    /// Whether the run tested what it was meant to.
    pub fn is_valid(&self) -> bool {
        self.validity.valid
    }

    /// The thresholds that were not shown to hold.
    pub fn missed(&self) -> impl Iterator<Item = &Threshold> {
        self.requirements.iter().filter(|threshold| threshold.finding != MET)
    }
}

impl Times {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let series: Vec<f64> = times.map(ms).collect();
        let mut sorted = series.clone();
        let count = series.len() as f64;
        let some = |value: f64| (!series.is_empty()).then_some(value);
        Self {
            count: series.len() as u64,
            quantiles: QUANTILES.map(|share| quantile(&mut sorted, &series, share)).to_vec(),
            mean_ms: some(series.iter().sum::<f64>() / count),
            max_ms: some(series.iter().copied().fold(0.0, f64::max)),
        }
    }

    fn read(histogram: &Histogram<u64>) -> Self {
        let ms = |nanos: f64| nanos / 1e6;
        let count = histogram.len();
        let some = |value: f64| (count > 0).then_some(value);
        let quantiles = QUANTILES.map(|share| {
            // The same rule as for requests: with fewer than ten beyond it, a quantile depends on single ones.
            let enough = (1.0 - share) * count as f64 >= 10.0;
            let ms = enough.then(|| ms(histogram.value_at_quantile(share) as f64));
            Quantile { share, ms, interval_ms: None }
        });
        Self {
            count,
            quantiles: quantiles.to_vec(),
            mean_ms: some(ms(histogram.mean())),
            max_ms: some(ms(histogram.max() as f64)),
        }
    }
}
