//! Judges whether a run is valid: if its own sender was late, the result does not describe the server.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::recorder::{Outcome, Sample};
use crate::report::ms;
use crate::statistics::bootstrap::quantile_of;

/// Schedule lag above this share of p50 (and above a millisecond) makes a run invalid.
const LAG_SHARE: f64 = 0.02;
const LAG_MS: f64 = 1.0;
/// Below this share of the offered requests the run is invalid.
const ACHIEVED: f64 = 0.995;

/// Whether a run tested what it was meant to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Validity {
    /// The verdict.
    pub valid: bool,
    /// 99th percentile of how late requests were sent.
    pub lag_p99_ms: f64,
    /// The limit of `lag_p99_ms`: 1 ms or 2 % of the median latency, whichever is more.
    pub lag_limit_ms: f64,
    /// Requests sent over requests offered; at least 0.995.
    pub achieved: f64,
    /// Share of the sent requests that failed; at most `allow_failed`.
    pub failed: f64,
    /// Why the run is invalid; empty if it is valid.
    pub faults: Vec<String>,
}

impl Validity {
    /// Judges a run in which this share of the requests may fail.
    pub fn of(allow_failed: f64, samples: &[Sample], offered: usize) -> Self {
        if samples.is_empty() {
            return Self { faults: vec!["no request was counted".to_owned()], ..Self::default() };
        }
        let times = |time: fn(&Sample) -> Duration| samples.iter().map(|sample| ms(time(sample))).collect();
        let (mut lags, mut latencies): (Vec<f64>, Vec<f64>) = (times(|s| s.lag), times(|s| s.latency));
        let count = |outcome| samples.iter().filter(|sample| sample.outcome == outcome).count();
        let sent = samples.len() - count(Outcome::Dropped);
        let failed = count(Outcome::Failed) as f64 / sent.max(1) as f64;
        let achieved = sent as f64 / offered.max(1) as f64;
        let lag_p99_ms = quantile_of(&mut lags, 0.99);
        let lag_limit_ms = LAG_MS.max(LAG_SHARE * quantile_of(&mut latencies, 0.5));
        let mut faults = Vec::new();
        if lag_p99_ms > lag_limit_ms {
            faults.push(format!(
                "requests were sent late: lag p99 is {lag_p99_ms:.3} ms, the limit {lag_limit_ms:.3} ms: use a lower rate or a quieter \
                 machine"
            ));
        }
        if achieved < ACHIEVED {
            faults.push(format!(
                "only {:.2} % of the offered requests were sent: the server cannot sustain the rate, {} % are required: use a lower \
                 rate",
                achieved * 100.0,
                ACHIEVED * 100.0
            ));
        }
        if failed > allow_failed {
            faults.push(format!(
                "{:.2} % of the requests failed: at most {} % are allowed: see --allow-failed",
                failed * 100.0,
                allow_failed * 100.0
            ));
        }
        Self { valid: faults.is_empty(), lag_p99_ms, lag_limit_ms, achieved, failed, faults }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: usize, lag: Duration) -> Vec<Sample> {
        let latency = Duration::from_millis(20);
        let sample = |i: usize| {
            let intended = Duration::from_millis(i as u64);
            Sample { intended, latency, lag, outcome: Outcome::Exact }
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn late_or_short_run_is_invalid_and_names_the_fault() {
        let first = |allow_failed, samples: &[Sample]| {
            Validity::of(allow_failed, samples, 1000).faults.first().map_or(String::new(), String::clone)
        };
        assert_eq!(first(0.01, &run(1000, Duration::from_micros(100))), "");
        assert!(first(0.01, &run(1000, Duration::from_millis(2))).contains("sent late"));
        assert!(first(0.01, &run(990, Duration::ZERO)).contains("only 99.00 %"));
        assert!(first(0.01, &[]).contains("no request"));
        let mut dropped = run(1000, Duration::ZERO);
        dropped[..6].iter_mut().for_each(|sample| sample.outcome = Outcome::Dropped);
        assert!(first(0.01, &dropped).contains("only 99.40 %"), "dropped requests were not sent");
        let mut failing = run(1000, Duration::ZERO);
        failing[..20].iter_mut().for_each(|sample| sample.outcome = Outcome::Failed);
        assert!(first(0.01, &failing).contains("2.00 % of the requests failed"));
        assert_eq!(first(0.05, &failing), "");
    }
}
