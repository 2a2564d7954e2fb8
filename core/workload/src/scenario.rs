//! Scenarios: faults and the shape of arrivals, predefined or from the experiment file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrivals;
use crate::distribution::Distribution;
use crate::{Fault, Faults, Pattern, Targets, When};

const MS: Duration = Duration::from_millis(1);

/// Faults and arrivals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The faults. Default: none.
    pub faults: Faults,
    /// The shape of arrivals. Default: that of the experiment.
    pub arrivals: Option<Pattern>,
    /// Recorded arrivals in seconds, replayed faster or slower according to the load; empty if there are none. They come
    /// from a recording and not from an experiment file.
    #[serde(skip)]
    pub trace: Vec<f64>,
}

/// The predefined scenarios and their descriptions.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("clean", "nothing goes wrong"),
    ("A", "1 % of the runs take 5 to 10 times as long, each on its own"),
    ("B", "each instance is 5 times slower 1/12 of the time, in episodes of 2 s"),
    ("AB", "half of A and half of B: 0.5 % of the runs, 1/24 of the time"),
    ("hang", "each instance hangs for 3 s, about every 30 s"),
    ("correlated", "half of the instances are 5 times slower at the same times, 1/12 of the time, for 2 s"),
    ("lognormal", "service times vary by a lognormal factor of median 1 and sigma 0.5"),
    ("pareto", "service times vary by a Pareto factor of at least 1 and shape 2.5"),
    ("bursts", "queries come in bursts of 100 ms and pauses of 100 ms"),
    ("shuffles", "4 concurrent transfers of 128 to 256 MB between random pairs, each 2.5 times slower"),
    (
        "tenants",
        "a second tenant on 1/9 of the instances makes them 2 times slower half of the time, for 5 s",
    ),
    ("crash", "each instance crashes about every 10 minutes, is away for 10 s and 3 times slower for 5 s"),
    ("partition", "each instance is cut off for 1 s, about every 100 s"),
];

impl Scenario {
    /// Returns the predefined scenario of this name.
    pub fn named(name: &str) -> Option<Self> {
        let faults = match name {
            "clean" => vec![],
            "A" => vec![stragglers(0.01)],
            "B" => vec![interference(1.0 / 12.0, Targets::Each)],
            "AB" => vec![stragglers(0.005), interference(1.0 / 24.0, Targets::Each)],
            "hang" => vec![Fault::Hang { when: episodes(0.1, 3000 * MS), on: Targets::Each }],
            "correlated" => vec![interference(1.0 / 12.0, Targets::Together(0.5))],
            "lognormal" => vec![every_run(Distribution::Lognormal { median: 1.0, sigma: 0.5 })],
            "pareto" => vec![every_run(Distribution::Pareto { min: 1.0, shape: 2.5 })],
            "bursts" => {
                let arrivals = Some(Pattern::Bursts { on: 100 * MS, off: 100 * MS });
                return Some(Self { arrivals, ..Self::default() });
            }
            "shuffles" => vec![Fault::Shuffles {
                concurrent: 4,
                min_mb: 128.0,
                max_mb: 256.0,
                link_mbps: 1000.0,
                factor: 2.5,
            }],
            "tenants" => {
                let on = Targets::Some(1.0 / 9.0);
                vec![Fault::Slow { factor: 2.0, when: episodes(0.5, 5000 * MS), on }]
            }
            "crash" => vec![Fault::Crash {
                when: episodes(10.0 / 600.0, 10_000 * MS),
                on: Targets::Each,
                slow_start: 3.0,
                slow_start_for: 5000 * MS,
            }],
            "partition" => vec![Fault::Partition { when: episodes(0.01, 1000 * MS), on: Targets::Each }],
            _ => return None,
        };
        Some(Self { faults: Faults(faults), ..Self::default() })
    }
}

impl Scenario {
    /// Returns its arrivals at a mean rate per second; `usual` is the shape if the scenario has none.
    pub fn at(&self, usual: Pattern, rate: f64) -> Arrivals {
        if self.trace.is_empty() {
            return self.arrivals.unwrap_or(usual).at(rate);
        }
        let recorded = Arrivals::Trace { seconds: self.trace.clone() }.rate();
        Arrivals::Trace { seconds: self.trace.iter().map(|seconds| seconds * recorded / rate).collect() }
    }

    /// Returns the queries of a run of `wanted` queries, and how many of them are its warm-up: a recording may have
    /// fewer.
    pub fn length(&self, wanted: u64, warm_up: u64) -> (u64, u64) {
        let recorded = self.trace.len() as u64;
        if recorded == 0 || recorded >= wanted {
            (wanted, warm_up)
        } else {
            (recorded, warm_up.min(recorded / 10))
        }
    }
}

fn stragglers(share: f64) -> Fault {
    Fault::Straggle { share, factor: Distribution::Uniform { min: 5.0, max: 10.0 }, on: Targets::Each }
}

fn interference(share: f64, on: Targets) -> Fault {
    Fault::Slow { factor: 5.0, when: episodes(share, 2000 * MS), on }
}

fn every_run(factor: Distribution) -> Fault {
    Fault::Straggle { share: 1.0, factor, on: Targets::Each }
}

fn episodes(share: f64, length: Duration) -> When {
    When::Episodes { share, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_arrivals_are_replayed_at_the_requested_rate() {
        let trace: Vec<f64> = (1..=100).map(|n| f64::from(n * n) / 1e3).collect();
        let scenario = Scenario { trace, ..Scenario::default() };
        let Arrivals::Trace { seconds } = scenario.at(Pattern::Poisson, 20.0) else {
            panic!("it is a trace")
        };
        assert!((seconds[99] - 5.0).abs() < 1e-9 && (seconds[9] - 0.05).abs() < 1e-9, "{seconds:?}");
        assert_eq!(scenario.length(1000, 50), (100, 10));
        assert_eq!(scenario.length(80, 5), (80, 5));
        assert_eq!(Scenario::default().at(Pattern::Constant, 3.0), Arrivals::Constant { rate: 3.0 });
    }

    #[test]
    fn every_listed_scenario_exists_and_is_valid() {
        for (name, _) in SCENARIOS {
            let scenario = Scenario::named(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(scenario.faults.check(18), Ok(()), "{name}");
        }
        assert_eq!(Scenario::named("mayhem"), None);
    }
}
