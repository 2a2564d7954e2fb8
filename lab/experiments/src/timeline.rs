//! How a run went: the slowest query of every stretch of it, and what was wrong with which instance meanwhile.

use parm_simulator::{Run, STRETCHES, Tally};
use parm_workload::clock::Moment;
use parm_workload::{Schedule, State};
use serde::Serialize;

/// The first repeat, by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Seconds from the start of the run to the first query that counts.
    pub from_s: f64,
    /// Seconds from the start of the run to its end, as far as it was planned.
    pub to_s: f64,
    /// Milliseconds that the slowest query took, of those that came in each of so many equal stretches.
    pub slowest_ms: Vec<f64>,
    /// What was wrong, when, and with whom; empty where that is too much for a picture.
    pub faults: Vec<Band>,
}

/// A stretch of time in which something was wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The instance, counted from 0.
    pub instance: u32,
    /// Seconds from the start of the run.
    pub from_s: f64,
    /// Likewise; not later than the end of the run.
    pub to_s: f64,
    /// What.
    pub kind: Kind,
}

/// What is wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It is slower.
    Slow,
    /// It hangs.
    Hangs,
    /// It is cut off.
    CutOff,
    /// It is gone.
    Down,
    /// Its answers are wrong.
    Wrong,
}

/// Bands that a picture can show.
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

/// `None` where there are too many.
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
    fn bands_are_the_times_at_which_something_is_wrong() {
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
