//! Judges whether a run is valid: if its own sender was late, the result does not describe the server.

use std::time::Duration;

use crate::recorder::{Outcome, Sample};
use crate::statistics::bootstrap::quantile_of;

/// Schedule lag above this share of p50 (and above a millisecond) makes a run invalid.
const LAG_SHARE: f64 = 0.02;
const LAG: Duration = Duration::from_millis(1);
/// Below this share of the offered requests the run is invalid.
pub const ACHIEVED: f64 = 0.995;

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// 99th percentile of the time between the intended and the real sending.
    pub lag_p99: Duration,
    /// The limit of `lag_p99`.
    pub lag_limit: Duration,
    /// Requests sent over requests offered.
    pub achieved: f64,
    /// Requests that were sent.
    pub sent: usize,
    /// Requests that were sent and failed.
    pub failed: usize,
    /// Why the run is invalid; empty when it is valid.
    pub faults: Vec<Fault>,
}

/// A reason to discard a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sender could not keep its schedule.
    Lag,
    /// Not every offered request was sent.
    Achieved,
    /// More requests failed than may.
    Failed,
    /// There is nothing to judge.
    Empty,
}

/// Judges a run in which this share of the requests may fail.
pub fn judge(failures: f64, samples: &[Sample], offered: usize) -> Verdict {
    let seconds =
        |time: fn(&Sample) -> Duration| samples.iter().map(|sample| time(sample).as_secs_f64()).collect();
    let (mut lags, mut latencies): (Vec<f64>, Vec<f64>) = (seconds(|s| s.lag), seconds(|s| s.latency));
    let mut faults = Vec::new();
    if samples.is_empty() {
        faults.push(Fault::Empty);
        let zero = Duration::ZERO;
        return Verdict { lag_p99: zero, lag_limit: zero, achieved: 0.0, sent: 0, failed: 0, faults };
    }
    let count = |outcome| samples.iter().filter(|sample| sample.outcome == outcome).count();
    let (failed, sent) = (count(Outcome::Failed), samples.len() - count(Outcome::Dropped));
    let lag_p99 = Duration::from_secs_f64(quantile_of(&mut lags, 0.99));
    let lag_limit = LAG.max(Duration::from_secs_f64(quantile_of(&mut latencies, 0.5) * LAG_SHARE));
    let achieved = sent as f64 / offered.max(1) as f64;
    if lag_p99 > lag_limit {
        faults.push(Fault::Lag);
    }
    if achieved < ACHIEVED {
        faults.push(Fault::Achieved);
    }
    if failed as f64 > failures * sent as f64 {
        faults.push(Fault::Failed);
    }
    Verdict { lag_p99, lag_limit, achieved, sent, failed, faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: usize, lag: Duration) -> Vec<Sample> {
        let latency = Duration::from_millis(20);
        (0..count)
            .map(|i| Sample {
                intended: Duration::from_millis(i as u64),
                latency,
                lag,
                outcome: Outcome::Exact,
            })
            .collect()
    }

    #[test]
    fn late_or_short_run_is_invalid_and_names_the_fault() {
        assert_eq!(judge(0.01, &run(1000, Duration::from_micros(100)), 1000).faults, []);
        assert_eq!(judge(0.01, &run(1000, Duration::from_millis(2)), 1000).faults, [Fault::Lag]);
        assert_eq!(judge(0.01, &run(990, Duration::ZERO), 1000).faults, [Fault::Achieved]);
        assert_eq!(judge(0.01, &[], 1000).faults, [Fault::Empty]);
        let mut dropped = run(1000, Duration::ZERO);
        dropped[..6].iter_mut().for_each(|sample| sample.outcome = Outcome::Dropped);
        assert_eq!(judge(0.01, &dropped, 1000).faults, [Fault::Achieved], "dropped requests were not sent");
        let mut failing = run(1000, Duration::ZERO);
        failing[..20].iter_mut().for_each(|sample| sample.outcome = Outcome::Failed);
        assert_eq!(judge(0.01, &failing, 1000).faults, [Fault::Failed]);
        assert_eq!(judge(0.05, &failing, 1000).faults, []);
    }
}
