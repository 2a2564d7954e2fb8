//! Plays a fault schedule on real instances, with the code that the simulator runs in virtual time.
//!
//! A run is stretched after its end: its work is spread over the schedule's intervals for its instance, and its answer
//! waits for the resulting time. Faults that a process cannot inject into itself, such as failed health checks, are
//! left to the experiment, which also stops and kills the process at the times of the schedule.

use std::time::{Duration, Instant};

use parm_workload::clock::Moment;
use parm_workload::{Ending, Faults, Schedule};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A fault schedule, as a worker receives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The faults, in the form of experiment files.
    pub faults: Faults,
    /// Seed of all random numbers. Default 0.
    #[serde(default)]
    pub seed: u64,
    /// The number of this worker's first instance in the schedule; the others follow. Default 0.
    #[serde(default)]
    pub first: u32,
    /// Number of instances in the schedule.
    pub instances: u32,
    /// Milliseconds until the start; negative if it was in the past. Default 0.
    #[serde(default)]
    pub starts_in_ms: i64,
}

/// A schedule that is being played.
#[derive(Debug)]
pub(super) struct Playing {
    schedule: Schedule,
    first: u32,
    instances: u32,
    start: Instant,
}

/// The fate of a run's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is ready at this time, and wrong if the flag is set.
    Answers(Instant, bool),
    /// The process ends at this time.
    Dies(Instant),
    /// It is not ready before the plan changes.
    Never,
}

impl Replay {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.faults.check(self.instances).map_err(|error| Error::Plan { message: error.to_string() })
    }

    pub(super) fn play(&self, now: Instant) -> Result<Playing, Error> {
        let schedule = Schedule::new(&self.faults, self.seed, self.instances)
            .map_err(|error| Error::Plan { message: error.to_string() })?;
        let away = Duration::from_millis(self.starts_in_ms.unsigned_abs());
        let start = if self.starts_in_ms < 0 { now.checked_sub(away) } else { now.checked_add(away) };
        let message = || {
            format!(
                "starts_in_ms is {}: outside the range of the clock: give a smaller number",
                self.starts_in_ms
            )
        };
        let start = start.ok_or_else(|| Error::Plan { message: message() })?;
        Ok(Playing { schedule, first: self.first, instances: self.instances, start })
    }
}

impl Playing {
    /// The fate of a run that began at `began` and took `took` without faults. `None` if the schedule does not affect
    /// it.
    pub(super) fn fate(&mut self, instance: usize, began: Instant, took: Duration) -> Option<Fate> {
        let instance =
            u32::try_from(instance).ok()?.checked_add(self.first).filter(|it| *it < self.instances)?;
        let began = Moment::after(began.checked_duration_since(self.start)?);
        let ending = self.schedule.run(instance, began, took.as_nanos() as f64);
        self.schedule.forget(instance, began);
        let time = |at: Moment| self.start.checked_add(Duration::from_nanos(at.as_nanos()));
        Some(match ending {
            Ending::Answered { at, wrong } => time(at).map_or(Fate::Never, |at| Fate::Answers(at, wrong)),
            Ending::Lost { at } => time(at).map_or(Fate::Never, Fate::Dies),
            Ending::Never => Fate::Never,
        })
    }
}

#[cfg(test)]
mod tests {
    use parm_workload::{Fault, Targets, When};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The fate of a run of 10 ms that begins some milliseconds after the start of the schedule.
    fn played(fault: Fault, instance: usize, began_ms: u32) -> Option<(Fate, Instant)> {
        let replay =
            Replay { faults: Faults(vec![fault]), seed: 1, first: 2, instances: 4, starts_in_ms: 1000 };
        let start = Instant::now();
        let mut playing = replay.play(start).unwrap();
        let start = start + 1000 * MS;
        Some((playing.fate(instance, start + began_ms * MS, 10 * MS)?, start))
    }

    fn once(at_ms: u64, length_ms: u64) -> When {
        When::Once { at: Duration::from_millis(at_ms), length: Duration::from_millis(length_ms) }
    }

    #[test]
    fn run_ends_at_the_time_of_the_schedule() {
        let hang = || Fault::Hang { when: once(100, 500), on: Targets::Only(vec![3]) };
        let (fate, start) = played(hang(), 1, 95).unwrap();
        assert_eq!(fate, Fate::Answers(start + 605 * MS, false));
        let (fate, start) = played(hang(), 0, 95).unwrap();
        assert_eq!(fate, Fate::Answers(start + 105 * MS, false), "the worker's other instance is number 2");
        let wrong = Fault::Wrong { share: 1.0, when: When::Always, on: Targets::Each };
        let (fate, start) = played(wrong, 0, 0).unwrap();
        assert_eq!(fate, Fate::Answers(start + 10 * MS, true));
        let crash = Fault::Crash {
            when: once(5, 100),
            on: Targets::Each,
            slow_start: 1.0,
            slow_start_for: Duration::ZERO,
        };
        let (fate, start) = played(crash, 0, 0).unwrap();
        assert_eq!(fate, Fate::Dies(start + 5 * MS));
        let forever = Fault::Hang { when: When::Always, on: Targets::Each };
        assert_eq!(played(forever, 0, 0).map(|(fate, _)| fate), Some(Fate::Never));
    }

    #[test]
    fn schedule_does_not_affect_earlier_runs_or_other_instances() {
        let hang = Fault::Hang { when: When::Always, on: Targets::Each };
        assert_eq!(played(hang.clone(), 2, 0), None);
        let replay =
            Replay { faults: Faults(vec![hang]), seed: 1, first: 0, instances: 4, starts_in_ms: 1000 };
        let now = Instant::now();
        assert_eq!(replay.play(now).unwrap().fate(0, now, 10 * MS), None);
    }
}
