//! Thresholds that a run must meet, for scripts: `p99.9<=20ms`, `failed<=0.1%`, `accuracy>=95%`.
//!
//! A threshold on a quantile is met only if the samples show it at 95 % confidence. Correlated samples count as the
//! smaller number of independent samples that they are worth.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;
use crate::report::Threshold;
use crate::run::Run;
use crate::statistics::{bootstrap, evidence};

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// This share of the requests took at most this long.
    Quantile(f64, Duration),
    /// At most this share of the requests failed or were not sent.
    Failed(f64),
    /// At least this share of the labelled rows was answered correctly.
    Accuracy(f64),
}

/// The confidence at which a quantile must be shown to hold.
const CONFIDENCE: f64 = 0.95;

/// What a threshold that holds is called.
pub(crate) const MET: &str = "met";
/// What it is called if the run had no samples, or no labels although it is about labels.
const NOT_MEASURED: &str = "not measured";

impl Requirement {
    /// Checks the requirement against a run.
    pub fn check(&self, run: &Run) -> Threshold {
        let count = run.samples.len();
        let (finding, needed) = match *self {
            _ if count == 0 => (NOT_MEASURED, None),
            Requirement::Quantile(share, limit) => quantile(run, share, limit),
            Requirement::Failed(share) => {
                let failed = run.samples.iter().filter(|sample| !sample.outcome.is_answer()).count();
                verdict(failed as f64 <= share * count as f64)
            }
            Requirement::Accuracy(share) => {
                run.tally.total().accuracy().map_or((NOT_MEASURED, None), |seen| verdict(seen >= share))
            }
        };
        Threshold { requirement: self.to_string(), finding: finding.to_owned(), needed }
    }
}

fn verdict(holds: bool) -> (&'static str, Option<u64>) {
    (if holds { MET } else { "missed" }, None)
}

fn quantile(run: &Run, share: f64, limit: Duration) -> (&'static str, Option<u64>) {
    let latencies: Vec<f64> = run.samples.iter().map(|sample| sample.latency.as_secs_f64()).collect();
    let count = latencies.len() as f64;
    let over = latencies.iter().filter(|latency| **latency > limit.as_secs_f64()).count() as f64;
    let worth = bootstrap::time_above(&latencies, limit.as_secs_f64());
    let (independent, beyond) = ((count / worth) as u64, (over / worth).ceil() as u64);
    if evidence::supports(independent, beyond, share, CONFIDENCE) {
        verdict(true)
    } else if over > (1.0 - share) * count {
        verdict(false)
    } else {
        let needed = evidence::needed(beyond, share, CONFIDENCE) as f64 * worth;
        ("not enough data", Some(needed.ceil() as u64))
    }
}

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| Error::BadRequirement { text: text.to_owned() })
    }
}

fn read(text: &str) -> Option<Requirement> {
    if let Some((what, least)) = text.split_once(">=") {
        return (what.trim() == "accuracy").then(|| Some(Requirement::Accuracy(percent(least)?)))?;
    }
    let (what, most) = text.split_once("<=").map(|(what, most)| (what.trim(), most.trim()))?;
    if what == "failed" {
        return Some(Requirement::Failed(percent(most)?));
    }
    let share = what.strip_prefix('p')?.parse::<f64>().ok()? / 100.0;
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (digits, unit) = units.into_iter().find_map(|(name, unit)| Some((most.strip_suffix(name)?, unit)))?;
    let limit = Duration::try_from_secs_f64(digits.trim().parse::<f64>().ok()? * unit).ok()?;
    (share > 0.0 && share < 1.0).then_some(Requirement::Quantile(share, limit))
}

fn percent(text: &str) -> Option<f64> {
    let share = text.trim().strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0;
    (0.0..=1.0).contains(&share).then_some(share)
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Quantile(share, limit) => {
                write!(f, "p{}<={}ms", (share * 1e8).round() / 1e6, limit.as_secs_f64() * 1e3)
            }
            Requirement::Failed(share) => write!(f, "failed<={}%", (share * 1e8).round() / 1e6),
            Requirement::Accuracy(share) => write!(f, "accuracy>={}%", (share * 1e8).round() / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Outcome, Tally};
    use crate::recorder::Sample;

    #[test]
    fn requirements_parse_from_their_written_form() {
        for (text, printed) in [
            ("p99.9<=20ms", "p99.9<=20ms"),
            ("p50 <= 1.5s", "p50<=1500ms"),
            ("p99<=250us", "p99<=0.25ms"),
            ("p99.9999<=5ms", "p99.9999<=5ms"),
            ("failed<=0.1%", "failed<=0.1%"),
            ("accuracy >= 95%", "accuracy>=95%"),
        ] {
            assert_eq!(text.parse::<Requirement>().unwrap().to_string(), printed);
            assert_eq!(printed.parse::<Requirement>().unwrap().to_string(), printed);
        }
        for bad in [
            "",
            "p99",
            "p101<=1ms",
            "p100<=1ms",
            "p99<=1",
            "p99<=-1ms",
            "p99<=infs",
            "p99<=1e300s",
            "failed<=3",
            "q9<=1ms",
            "accuracy<=95%",
            "accuracy>=195%",
            "p99>=5ms",
        ] {
            assert!(bad.parse::<Requirement>().is_err(), "{bad}");
        }
    }

    /// One request in `slow_every` takes 50 ms, the others about 5; the slow ones come `together` at a time.
    fn run(count: usize, slow_every: usize, together: usize) -> Run {
        let sample = |i: usize| Sample {
            intended: Duration::from_millis(i as u64),
            latency: Duration::from_millis(if i / together % slow_every == slow_every / 2 { 50 } else { 5 }),
            lag: Duration::ZERO,
            outcome: if i % 1000 == 1 { Outcome::Failed } else { Outcome::Exact },
        };
        let mut tally = Tally::default();
        (0..100).for_each(|i| tally.row(Outcome::Exact, i >= 4));
        Run {
            samples: (0..count).map(sample).collect(),
            offered: count,
            tally,
            length: Duration::from_millis(count as u64),
            ..Run::default()
        }
    }

    #[test]
    fn requirement_is_met_only_with_enough_samples() {
        let check = |run: &Run, text: &str| {
            let Threshold { finding, needed, .. } = text.parse::<Requirement>().unwrap().check(run);
            finding + &needed.map_or(String::new(), |needed| format!(": {needed}"))
        };
        let many = run(20_000, 2_000, 1);
        assert_eq!(check(&many, "p99.9<=20ms"), "met");
        assert_eq!(check(&many, "p99.99<=20ms"), "missed", "ten of 20,000 are slower");
        assert_eq!(check(&many, "failed<=0.2%"), "met");
        assert_eq!(check(&many, "failed<=0.05%"), "missed");
        assert_eq!(check(&many, "accuracy>=95%"), "met");
        assert_eq!(check(&many, "accuracy>=97%"), "missed");
        let few = run(500, 1000, 1);
        assert_eq!(check(&few, "p99.9<=60ms"), "not enough data: 2995");
        assert_eq!(check(&Run { samples: vec![], ..few }, "p50<=1s"), "not measured");
    }

    #[test]
    fn correlated_samples_count_less_than_independent_ones() {
        let requirement: Requirement = "p99<=20ms".parse().unwrap();
        let check = |together| requirement.check(&run(20_000, 200, together)).finding;
        assert_eq!(check(1), "met", "half of the allowed number is slow");
        assert_eq!(check(50), "not enough data");
    }
}
