//! The report of a run, for people and for programs. A quantile without enough samples is not printed.
//!
//! `docs/load.schema.json` is generated from these types; a test compares them.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::chat::{Answers, ChatReport};
use crate::failures::FailureReason;
use crate::outcome::{Count, Outcome};
use crate::recorder::{self, Sample};
use crate::requirement::{MET, Requirement};
use crate::run::Run;
use crate::statistics::bootstrap::{self, quantile_of};
use crate::validity::Validity;

/// The quantiles of a report.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];
/// Seed of the resampling behind the intervals: the same samples give the same report.
const RESAMPLING_SEED: u64 = 1;

/// A run, judged. Times are milliseconds unless a name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// The configuration of the run.
    pub setting: Setting,
    /// Length of the counted part in seconds.
    pub seconds: f64,
    /// Requests that should have been sent in it.
    pub offered: usize,
    /// Requests that were sent.
    pub sent: usize,
    /// Requests not sent because too many were without an answer.
    pub dropped: usize,
    /// Requests per second that should have been sent.
    pub offered_per_second: f64,
    /// Requests per second that were answered, until the last answer.
    pub answered_per_second: f64,
    /// Rows per second that were answered, until the last answer.
    pub rows_per_second: f64,
    /// Requests by outcome; only outcomes that occurred.
    pub outcomes: Vec<Share>,
    /// Share of all labelled rows that were answered correctly; absent without labels.
    pub accuracy: Option<f64>,
    /// Quantiles of the latency of all requests, from the intended send time; of chats, of the time to the first token. A
    /// request without an answer is as late as the deadline.
    pub latency: Vec<Quantile>,
    /// Mean latency.
    pub mean_ms: f64,
    /// Longest latency.
    pub max_ms: f64,
    /// Whether the run tested what it was meant to.
    pub validity: Validity,
    /// The requested thresholds.
    pub requirements: Vec<Threshold>,
    /// The failed requests by reason, the most frequent first.
    pub failures: Vec<FailureReason>,
    /// The first failure's message.
    pub first_failure: Option<String>,
    /// Further figures of chats; absent for queries.
    pub chats: Option<ChatReport>,
}

/// The configuration of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Setting {
    /// The server.
    pub url: String,
    /// The model.
    pub model: String,
    /// `server`, `single-stream`, `multi-stream` or `offline`.
    pub scenario: String,
    /// The shape of arrivals, in the server scenario.
    pub arrivals: Option<String>,
    /// Concurrent requests, in the other scenarios.
    pub streams: Option<usize>,
    /// Rows in a request.
    pub rows: usize,
    /// Seed of arrivals and generated inputs.
    pub seed: u64,
    /// Seconds of warm-up, whose requests are sent and not counted.
    pub warm_up_seconds: f64,
    /// Milliseconds that a request may take.
    pub deadline_ms: f64,
    /// Share of the requests that may fail before the run is invalid.
    pub allow_failed: f64,
    /// The requests of chats; absent for queries.
    pub chats: Option<ChatSetting>,
}

/// The requests of chats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ChatSetting {
    /// All of one size.
    Steady {
        /// Tokens of each prompt.
        prompt_tokens: u32,
        /// Tokens of each answer.
        output_tokens: u32,
    },
    /// A trace.
    Recorded {
        /// How many times as fast it was replayed.
        speed: f64,
    },
}

/// Requests of one outcome.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// `exact`, `hedged`, `reconstructed`, `stand-in`, `backup`, `default`, `failed` or `dropped`.
    pub outcome: String,
    /// How many.
    pub requests: u64,
    /// Their share of all.
    pub share: f64,
    /// Their median latency.
    pub p50_ms: f64,
    /// Labelled rows of this outcome.
    pub graded: u64,
    /// Those that were correct.
    pub right: u64,
    /// Share of them; absent without labels.
    pub accuracy: Option<f64>,
}

/// A quantile, if there are enough samples.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Quantile {
    /// The share of requests, 0.999 for p99.9.
    pub share: f64,
    /// The latency; absent if fewer than ten requests lie beyond it.
    pub ms: Option<f64>,
    /// Bounds of the 95 % interval; absent if the correlated samples are too few for one.
    pub interval_ms: Option<(f64, f64)>,
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

/// A threshold and whether the run meets it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Threshold {
    /// The requirement as written.
    pub requirement: String,
    /// `met`, `missed`, `not enough data` or `not measured`.
    pub finding: String,
    /// Requests that would be enough if no more of them exceeded the threshold; only if there is not enough data.
    pub needed: Option<u64>,
}

impl Report {
    /// Judges a run.
    pub fn of(run: &Run, setting: Setting, requirements: &[Requirement]) -> Self {
        let latency = Times::of(run.samples.iter().map(|sample| sample.latency));
        let per_second = |count: usize, length: Duration| {
            if length.is_zero() { 0.0 } else { count as f64 / length.as_secs_f64() }
        };
        let answers = || run.samples.iter().filter(|sample| sample.outcome.is_answer());
        let answered = answers().count();
        // Answers of an overloaded server come long after the last request.
        let ended = answers().map(|sample| sample.intended + sample.latency).max().unwrap_or_default();
        let ended = run.chats.as_ref().map_or(ended, Answers::end);
        let warm_up = Duration::try_from_secs_f64(setting.warm_up_seconds).unwrap_or_default();
        let busy = run.length.max(ended.saturating_sub(warm_up));
        let was_sent = |sample: &&Sample| sample.outcome != Outcome::Dropped;
        Self {
            seconds: run.length.as_secs_f64(),
            offered: run.offered,
            sent: run.samples.iter().filter(was_sent).count(),
            dropped: run.dropped,
            offered_per_second: per_second(run.offered, run.length),
            answered_per_second: per_second(answered, busy),
            rows_per_second: per_second(answered, busy) * setting.rows as f64,
            outcomes: Outcome::ALL.into_iter().filter_map(|outcome| share(run, outcome)).collect(),
            accuracy: run.tally.total().accuracy(),
            latency: latency.quantiles,
            mean_ms: latency.mean_ms.unwrap_or_default(),
            max_ms: latency.max_ms.unwrap_or_default(),
            validity: Validity::of(setting.allow_failed, &run.samples, run.offered),
            requirements: requirements.iter().map(|requirement| requirement.check(run)).collect(),
            failures: run.failures.by_frequency(),
            first_failure: run.failures.first().map(str::to_owned),
            chats: run.chats.as_ref().map(|answers| ChatReport::of(run, answers, busy)),
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
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, has_intervals: bool) -> fmt::Result {
        self.quantiles.iter().try_for_each(|quantile| latency(f, quantile, has_intervals))?;
        let (Some(mean), Some(max)) = (self.mean_ms, self.max_ms) else { return Ok(()) };
        writeln!(f, "mean        {mean:.3} ms, longest {max:.3} ms")
    }

    pub(crate) fn of(times: impl Iterator<Item = Duration>) -> Self {
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

    pub(crate) fn read(times: &recorder::Times) -> Self {
        let count = times.count();
        let some = |nanos: f64| (count > 0).then_some(nanos / 1e6);
        let quantiles = QUANTILES.map(|share| {
            // The same rule as for requests: with fewer than ten beyond it, a quantile depends on single ones.
            let enough = (1.0 - share) * count as f64 >= 10.0;
            Quantile { share, ms: enough.then(|| ms(times.quantile(share))), interval_ms: None }
        });
        let (mean, max) = (times.0.mean(), times.0.max() as f64);
        Self { count, quantiles: quantiles.to_vec(), mean_ms: some(mean), max_ms: some(max) }
    }
}

fn share(run: &Run, outcome: Outcome) -> Option<Share> {
    let count @ Count { requests, graded, right } = run.tally.of(outcome);
    if requests == 0 && graded == 0 {
        return None;
    }
    let of_it = |sample: &&Sample| sample.outcome == outcome;
    let mut latencies: Vec<f64> = run.samples.iter().filter(of_it).map(|sample| ms(sample.latency)).collect();
    Some(Share {
        outcome: outcome.name().to_owned(),
        requests,
        share: requests as f64 / run.samples.len().max(1) as f64,
        // A row can have an outcome that no whole request has.
        p50_ms: if latencies.is_empty() { 0.0 } else { quantile_of(&mut latencies, 0.5) },
        graded,
        right,
        accuracy: count.accuracy(),
    })
}

fn quantile(latencies: &mut [f64], series: &[f64], share: f64) -> Quantile {
    // With fewer than ten samples beyond it, a quantile depends on single requests.
    if (1.0 - share) * (latencies.len() as f64) < 10.0 {
        return Quantile { share, ms: None, interval_ms: None };
    }
    let interval = bootstrap::interval(series, share, RESAMPLING_SEED);
    Quantile {
        share,
        ms: Some(quantile_of(latencies, share)),
        interval_ms: interval.map(|interval| (interval.low, interval.high)),
    }
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, sent, offered, dropped, validity, .. } = self;
        let how = match (&setting.arrivals, setting.streams) {
            (Some(arrivals), _) => format!("{arrivals} arrivals, seed {}", setting.seed),
            (None, Some(streams)) => format!("{streams} at a time"),
            (None, None) => String::new(),
        };
        writeln!(f, "{} of model {} at {}: {how}", setting.scenario, setting.model, setting.url)?;
        writeln!(f, "requests    {sent} sent of {offered} offered, {dropped} dropped")?;
        writeln!(
            f,
            "length      {:.1} s after {} s of warm-up, {:.1} requests/s offered",
            self.seconds, setting.warm_up_seconds, self.offered_per_second
        )?;
        writeln!(
            f,
            "answers     {:.1} requests/s, {:.1} rows/s",
            self.answered_per_second, self.rows_per_second
        )?;
        for share in &self.outcomes {
            outcome(f, share)?;
        }
        if let Some(accuracy) = self.accuracy {
            writeln!(f, "accuracy    {:.2} % of all labelled rows", accuracy * 100.0)?;
        }
        writeln!(f)?;
        if self.chats.is_some() {
            writeln!(f, "time to first token (TTFT)")?;
        }
        for quantile in &self.latency {
            latency(f, quantile, true)?;
        }
        writeln!(f, "mean        {:.3} ms, longest {:.3} ms", self.mean_ms, self.max_ms)?;
        if let Some(chats) = &self.chats {
            write!(f, "\n{chats}")?;
        }
        for Threshold { requirement, finding, needed } in &self.requirements {
            write!(f, "require     {requirement}: {finding}")?;
            match needed {
                Some(needed) => writeln!(f, " ({needed} requests may be enough)")?,
                None => writeln!(f)?,
            }
        }
        // Requests that failed for the same reason may have other messages.
        for FailureReason { reason, requests, first } in &self.failures {
            writeln!(f, "failed      {requests} {reason}, the first: {first}")?;
        }
        write!(
            f,
            "{}lag p99 {:.3} ms (limit {:.3}), {:.2} % sent, {:.2} % failed",
            if validity.valid { "valid       " } else { "INVALID     " },
            validity.lag_p99_ms,
            validity.lag_limit_ms,
            validity.achieved * 100.0,
            validity.failed * 100.0
        )?;
        validity.faults.iter().try_for_each(|fault| write!(f, "\n            {fault}"))
    }
}

fn outcome(f: &mut fmt::Formatter<'_>, share: &Share) -> fmt::Result {
    let Share { outcome, requests, p50_ms, accuracy, graded, .. } = share;
    write!(f, "  {outcome:<14}{requests:>9}  {:>6.2} %   p50 {p50_ms:.3} ms", share.share * 100.0)?;
    match accuracy {
        Some(accuracy) => writeln!(f, "   {:.2} % right of {graded} rows", accuracy * 100.0),
        None => writeln!(f),
    }
}

fn latency(f: &mut fmt::Formatter<'_>, quantile: &Quantile, has_intervals: bool) -> fmt::Result {
    let name = format!("p{}", (quantile.share * 1e6).round() / 1e4);
    match (quantile.ms, quantile.interval_ms) {
        (None, _) => writeln!(f, "{name:<12}not enough data"),
        (Some(ms), _) if !has_intervals => writeln!(f, "{name:<12}{ms:.3} ms"),
        (Some(ms), None) => writeln!(f, "{name:<12}{ms:.3} ms (not enough data for an interval)"),
        (Some(ms), Some((low, high))) => writeln!(f, "{name:<12}{ms:.3} ms ({low:.3} to {high:.3})"),
    }
}

#[cfg(test)]
mod tests;
