//! Whether a run tested what it was meant to: one whose own sender was late says nothing of a policy.

use std::time::Duration;

use parm_simulator::{Outcome, Run};
use serde::Serialize;

use crate::drive::{Driven, Sample};

/// The verdict on a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validity {
    /// Queries that should have been sent and counted.
    pub offered: u64,
    /// Queries that were.
    pub sent: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// 99th percentile of how late queries were sent, in milliseconds.
    pub lag_p99_ms: f64,
    /// Why the run says nothing; empty where it does.
    pub problems: Vec<String>,
    /// The first failure's message.
    pub failure: Option<String>,
}

/// Lag above this, and above this share of the median latency, makes a run invalid.
const LAG: Duration = Duration::from_millis(1);
const LAG_SHARE: f64 = 0.02;
/// Below this share of the offered queries a run is invalid.
const ACHIEVED: f64 = 0.995;

impl Validity {
    pub(crate) fn of(run: &Run, driven: &Driven) -> Self {
        let counted: Vec<&Sample> =
            driven.samples.iter().filter(|sample| sample.number >= run.warm_up).collect();
        let quantile = |of: fn(&Sample) -> Duration, share: f64| {
            let mut all: Vec<Duration> = counted.iter().map(|sample| of(sample)).collect();
            all.sort_unstable();
            let last = all.len().saturating_sub(1);
            all.get((last as f64 * share) as usize).copied().unwrap_or_default()
        };
        let lag = quantile(|sample| sample.lag, 0.99);
        let limit = LAG.max(quantile(|sample| sample.latency, 0.5).mul_f64(LAG_SHARE));
        let (offered, sent) = (run.queries - run.warm_up, counted.len() as u64);
        let mut problems = Vec::new();
        if lag > limit {
            problems.push(format!("queries were sent late: lag p99 {lag:.1?}, limit {limit:.1?}"));
        }
        if (sent as f64) < ACHIEVED * offered as f64 {
            problems.push(format!("only {sent} of {offered} queries were sent"));
        }
        let failed = counted.iter().filter(|sample| sample.outcome == Outcome::Rejected).count() as u64;
        let lag_p99_ms = lag.as_secs_f64() * 1e3;
        Self { offered, sent, failed, lag_p99_ms, problems, failure: driven.failure.clone() }
    }

    /// Whether the run says something.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}
