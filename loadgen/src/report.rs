//! What a run says, for people and for programs. A quantile that the samples cannot carry is not printed.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::recorder::{Outcome, Sample};
use crate::requirement::Requirement;
use crate::run::Run;
use crate::statistics::bootstrap::{Bootstrap, quantile_of};
use crate::statistics::evidence;
use crate::validity::{self, Fault};

/// The quantiles of a report.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];
/// Probability with which the intervals hold the truth.
const CONFIDENCE: f64 = 0.95;
/// Seed of the resampling behind the intervals: the same samples give the same report.
const RESAMPLING_SEED: u64 = 1;

/// A run, judged. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Requests that should have been sent.
    pub offered: usize,
    /// Requests that were.
    pub sent: usize,
    /// Requests not sent because too many were without an answer.
    pub dropped: usize,
    /// Answers by how they came about.
    pub outcomes: Vec<(String, usize)>,
    /// Quantiles of the latency, from the intended send time.
    pub latency: Vec<Quantile>,
    /// 99th percentile of how late requests were sent.
    pub lag_p99_ms: f64,
    /// Why the run says nothing; empty when it is valid.
    pub faults: Vec<String>,
    /// The first failure's message.
    pub first_failure: Option<String>,
}

/// A quantile, if the samples carry it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// The share of requests, 0.999 for p99.9.
    pub share: f64,
    /// The latency; absent where there is not enough data.
    pub ms: Option<f64>,
    /// Bounds of the 95 % interval; absent where the correlated samples are too few for one.
    pub interval_ms: Option<(f64, f64)>,
}

impl Report {
    /// Judges a run.
    pub fn of(run: &Run) -> Self {
        let verdict = validity::judge(&run.samples, run.offered);
        let mut latencies: Vec<f64> = run.samples.iter().map(|sample| ms(sample.latency)).collect();
        let latency = QUANTILES.map(|share| quantile(&mut latencies, &run.samples, share)).to_vec();
        let fault = |fault: &Fault| match fault {
            Fault::Lag => format!(
                "requests were sent late: lag p99 {:?}, limit {:?}",
                verdict.lag_p99, verdict.lag_limit
            ),
            Fault::Achieved => {
                format!("only {:.2} % of the offered requests were sent", verdict.achieved * 100.0)
            }
            Fault::Empty => "no request was counted".to_owned(),
        };
        Self {
            offered: run.offered,
            sent: run.samples.len(),
            dropped: run.dropped,
            outcomes: outcomes(&run.samples),
            latency,
            lag_p99_ms: ms(verdict.lag_p99),
            faults: verdict.faults.iter().map(fault).collect(),
            first_failure: run.first_failure.as_ref().map(ToString::to_string),
        }
    }

    /// Whether the run tested what it was meant to.
    pub fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

/// The requirements that the samples of a run miss. One that they cannot decide is missed too.
pub fn missed(run: &Run, requirements: &[Requirement]) -> Vec<Requirement> {
    let count = run.samples.len() as u64;
    let meets = |requirement: &Requirement| match *requirement {
        Requirement::Quantile(share, limit) => {
            let over = run.samples.iter().filter(|sample| sample.latency > limit).count() as u64;
            count > 0 && evidence::supports(count, over, share, CONFIDENCE)
        }
        Requirement::Failed(share) => {
            let failed = run.samples.iter().filter(|sample| sample.outcome == Outcome::Failed).count();
            count > 0 && (failed + run.dropped) as f64 <= share * run.offered as f64
        }
    };
    requirements.iter().filter(|requirement| !meets(requirement)).copied().collect()
}

fn quantile(latencies: &mut [f64], samples: &[Sample], share: f64) -> Quantile {
    // Ten samples beyond a quantile are the least that make it more than one request's luck.
    if (1.0 - share) * (latencies.len() as f64) < 10.0 {
        return Quantile { share, ms: None, interval_ms: None };
    }
    let series: Vec<f64> = samples.iter().map(|sample| ms(sample.latency)).collect();
    let interval = Bootstrap::for_quantile(&series, share, RESAMPLING_SEED).quantile(&series, share);
    Quantile {
        share,
        ms: Some(quantile_of(latencies, share)),
        interval_ms: interval.map(|interval| (interval.low, interval.high)),
    }
}

fn outcomes(samples: &[Sample]) -> Vec<(String, usize)> {
    let all = [Outcome::Exact, Outcome::Hedged, Outcome::Reconstructed, Outcome::Default, Outcome::Failed];
    all.into_iter()
        .map(|outcome| {
            (format!("{outcome:?}").to_lowercase(), samples.iter().filter(|s| s.outcome == outcome).count())
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "requests   {} sent of {} offered, {} dropped", self.sent, self.offered, self.dropped)?;
        let outcomes: Vec<String> =
            self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        writeln!(f, "outcomes   {}", outcomes.join(", "))?;
        for Quantile { share, ms, interval_ms } in &self.latency {
            let name = format!("p{}", (share * 1e6).round() / 1e4);
            match (ms, interval_ms) {
                (None, _) => writeln!(f, "{name:<10} not enough data")?,
                (Some(ms), None) => {
                    writeln!(f, "{name:<10} {ms:.3} ms (too few independent samples for an interval)")?
                }
                (Some(ms), Some((low, high))) => {
                    writeln!(f, "{name:<10} {ms:.3} ms ({low:.3} to {high:.3})")?
                }
            }
        }
        write!(f, "send lag   p99 {:.3} ms", self.lag_p99_ms)?;
        if let Some(failure) = &self.first_failure {
            write!(f, "\nfailure    {failure}")?;
        }
        for fault in &self.faults {
            write!(f, "\nINVALID    {fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u64, slow_every: u64, failed_every: u64) -> Run {
        let sample = |i: u64| Sample {
            intended: Duration::from_millis(i),
            latency: Duration::from_millis(if i.is_multiple_of(slow_every) { 50 } else { 5 + i % 3 }),
            lag: Duration::ZERO,
            outcome: if i % failed_every == 1 { Outcome::Failed } else { Outcome::Exact },
        };
        Run {
            samples: (0..count).map(sample).collect(),
            offered: count as usize,
            dropped: 0,
            first_failure: None,
        }
    }

    #[test]
    fn a_quantile_without_enough_samples_is_not_printed() {
        let report = Report::of(&run(5_000, 100, u64::MAX));
        let known: Vec<bool> = report.latency.iter().map(|quantile| quantile.ms.is_some()).collect();
        assert_eq!(known, [true, true, true, false, false]);
        assert!(report.to_string().contains("p99.9      not enough data"), "{report}");
        assert!(report.is_valid());
    }

    #[test]
    fn requirements_are_met_only_with_evidence() {
        let check = |run: &Run, text: &str| missed(run, &[text.parse().unwrap()]).is_empty();
        let many = run(20_000, 2_000, 1_000);
        assert!(check(&many, "p99.9<=20ms"));
        assert!(!check(&many, "p99.99<=20ms"), "ten of 20,000 are slower");
        assert!(check(&many, "failed<=0.2%") && !check(&many, "failed<=0.05%"));
        let few = run(500, u64::MAX, u64::MAX);
        assert!(!check(&few, "p99.9<=60ms"), "500 samples say nothing of p99.9");
    }
}
