//! A run over time: the slowest query of each stretch, and the faults of each instance.

use parm_simulator::{Run, STRETCHES, Tally};
use parm_workload::clock::Moment;
use parm_workload::{Schedule, State};
use serde::Serialize;

/// The first repeat over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Seconds from the start of the run to the first query that counts.
    pub from_s: f64,
    /// Seconds from the start of the run to its planned end.
    pub to_s: f64,
    /// The latency of the slowest query in each of several equal stretches, in milliseconds.
    pub slowest_ms: Vec<f64>,
    /// The faults; empty if there are too many for a chart.
    pub faults: Vec<Band>,
}

/// A stretch of time in which an instance had a fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The instance, counted from 0.
    pub instance: u32,
    /// Seconds from the start of the run.
    pub from_s: f64,
    /// Seconds from the start of the run; at most its end.
    pub to_s: f64,
    /// The kind of fault.
    pub kind: Kind,
}

/// The fault of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It is slower.
    Slow,
    /// It hangs.
    Hangs,
    /// It is unreachable.
    CutOff,
    /// It is down.
    Down,
    /// Its answers are wrong.
    Wrong,
}

/// Most bands that a chart can show.
const MOST: usize = 1500;

impl Timeline {
    pub(crate) fn of(tally: &Tally, run: &Run) -> Self {
        let seconds = |queries: u64| queries as f64 / run.arrivals.rate();
        let (from_s, to_s) = (seconds(run.warm_up), seconds(run.warm_up + tally.expected()));
        let slowest_ms: Vec<f64> = tally.slowest().iter().map(|nanos| *nanos as f64 / 1e6).collect();
        debug_assert_eq!(slowest_ms.len() as u64, STRETCHES);
        Self { from_s, to_s, slowest_ms, faults: bands(run, to_s).unwrap_or_default() }
    }
}

/// Returns `None` if there are too many.
fn bands(run: &Run, to_s: f64) -> Option<Vec<Band>> {
    let mut schedule = Schedule::new(&run.faults, run.seed, run.shape.instances).ok()?;
    let end = Moment::START.later(to_s * 1e9);
    let mut bands = Vec::new();
    for instance in 0..run.shape.instances {
        let mut at = Moment::START;
        while at < end {
            let now = schedule.condition(instance, at);
            let until = now.until.min(end);
            let kind = match now.state {
                State::Down => Some(Kind::Down),
                State::Hangs => Some(Kind::Hangs),
                State::CutOff => Some(Kind::CutOff),
                State::Works if now.wrong > 0.0 => Some(Kind::Wrong),
                State::Works if now.slowdown > 1.0 => Some(Kind::Slow),
                State::Works => None,
            };
            let seconds = |moment: Moment| moment.as_nanos() as f64 / 1e9;
            if let Some(kind) = kind {
                bands.push(Band { instance, from_s: seconds(at), to_s: seconds(until), kind });
            }
            if bands.len() > MOST {
                return None;
            }
            at = until;
        }
    }
    Some(bands)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parm_workload::{Fault, Faults, Targets, When};

    use super::*;
    use crate::{Config, Experiment};

    #[test]
    fn bands_are_the_times_of_faults() {
        let config =
            Config::parse("scenarios = [\"clean\"]\npolicies = [\"equal\"]\nrates = [100.0]\nqueries = 1000");
        let mut run =
            Experiment::new(Config { warm_up: 100, ..config.unwrap() }).unwrap().cells()[0].runs[0].clone();
        let hang = Fault::Hang {
            when: When::Once { at: Duration::from_millis(9500), length: Duration::from_secs(3) },
            on: Targets::Only(vec![4]),
        };
        let slow = Fault::Slow {
            factor: 5.0,
            when: When::Once { at: Duration::ZERO, length: Duration::from_millis(9750) },
            on: Targets::Only(vec![4]),
        };
        run.faults = Faults(vec![hang, slow]);
        let timeline = Timeline::of(&Tally::new(900, run.deadline), &run);
        assert_eq!((timeline.from_s, timeline.to_s), (1.0, 10.0));
        let band = |from_s, to_s, kind| Band { instance: 4, from_s, to_s, kind };
        let expected =
            [band(0.0, 9.5, Kind::Slow), band(9.5, 9.75, Kind::Hangs), band(9.75, 10.0, Kind::Hangs)];
        assert_eq!(timeline.faults, expected);
        run.faults = Faults(vec![Fault::Slow {
            factor: 2.0,
            when: When::Episodes { share: 0.5, length: Duration::from_millis(1) },
            on: Targets::Each,
        }]);
        assert_eq!(Timeline::of(&Tally::new(900, run.deadline), &run).faults, [], "too many to show");
    }
}
