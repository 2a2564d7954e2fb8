//! Plays a fault schedule on real instances, with the code that the simulator runs in virtual time.
//!
//! A run is stretched after its end: its work is spread over the schedule's intervals for its instance, and its answer
//! waits for the resulting time. Faults that a process cannot inject into itself, such as failed health checks, are
//! left to the experiment, which also stops and kills the process at the times of the schedule.
//!
//! A run can only be made longer: a factor below 1 counts as 1.

use std::time::{Duration, Instant};

use parm_protocol::Tensor;
use parm_workload::Time;
use parm_workload::{Ending, Faults, PROFILES, SCENARIOS, Scenario, Schedule};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Most instances of a schedule, each of which takes memory.
const MOST_INSTANCES: u32 = 65_536;

/// A fault schedule, as a worker receives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A predefined scenario, or several that `+` joins, as in `parm simulate --list`. Default: none.
    #[serde(default)]
    pub scenario: Option<String>,
    /// Faults in addition to those of the scenario, in the form of experiment files. Default: none.
    #[serde(default)]
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
        if self.instances > MOST_INSTANCES {
            let message = format!("instances is {}: give at most {MOST_INSTANCES}", self.instances);
            return Err(Error::Plan { message });
        }
        let faults = self.all()?;
        faults.check(self.instances).map_err(|error| Error::Plan { message: error.to_string() })
    }

    /// Returns the faults of the scenario and the others.
    fn all(&self) -> Result<Faults, Error> {
        let mut faults = self.scenario.as_deref().map_or(Ok(Faults::default()), named)?;
        faults.0.extend(self.faults.0.iter().cloned());
        Ok(faults)
    }

    pub(super) fn play(&self, now: Instant) -> Result<Playing, Error> {
        let schedule = Schedule::new(&self.all()?, self.seed, self.instances)
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

/// Returns the faults of a predefined scenario.
fn named(name: &str) -> Result<Faults, Error> {
    let known = || SCENARIOS.iter().chain(PROFILES).map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let message = || format!("unknown scenario '{name}': use one of {}, or several as in hosts+A", known());
    Scenario::named(name).map(|scenario| scenario.faults).ok_or_else(|| Error::Plan { message: message() })
}

impl Playing {
    /// The fate of a run on these inputs that began at `began` and took `took` without faults. `None` if the schedule
    /// does not affect it.
    pub(super) fn fate(
        &mut self,
        instance: usize,
        inputs: &[Tensor],
        began: Instant,
        took: Duration,
    ) -> Option<Fate> {
        let instance =
            u32::try_from(instance).ok()?.checked_add(self.first).filter(|it| *it < self.instances)?;
        let began = Time::ZERO + began.checked_duration_since(self.start)?;
        let length = self.schedule.longest(instance, names(inputs));
        let ending = self.schedule.run(instance, began, length * took.as_nanos() as f64);
        self.schedule.forget(instance, began);
        let time = |at: Time| self.start.checked_add(Duration::from_nanos(at.as_nanos()));
        Some(match ending {
            Ending::Answered { at, wrong } => time(at).map_or(Fate::Never, |at| Fate::Answers(at, wrong)),
            Ending::Lost { at } => time(at).map_or(Fate::Never, Fate::Dies),
            Ending::Never => Fate::Never,
        })
    }
}

/// Returns the name of each row, so that all workers agree on a query's factor without exchanging it.
///
/// The name is a hash of the bytes of one row of each input. A query therefore has the same name alone, in a batch, as a
/// copy and for a stand-in. A parity query is a sum of queries with bytes of its own: a worker cannot see its members, so
/// it draws a factor of its own, where a simulation takes the longest member's.
fn names(inputs: &[Tensor]) -> impl Iterator<Item = u64> {
    let rows = inputs.first().map_or(0, Tensor::rows);
    (0..rows).map(move |row| inputs.iter().fold(SEED, |hash, input| continued(hash, input, row)))
}

/// Continues a hash (64-bit FNV-1a) with a row of an input. An input without this row counts as a whole.
fn continued(hash: u64, input: &Tensor, row: usize) -> u64 {
    let row = input.slice_rows(row, 1);
    let bytes = row.as_ref().unwrap_or(input).data();
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x100_0000_01b3;

#[cfg(test)]
mod tests {
    use parm_workload::{Fault, Targets, When};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn replay(faults: Vec<Fault>) -> Replay {
        let faults = Faults(faults);
        Replay { scenario: None, faults, seed: 1, first: 0, instances: 1, starts_in_ms: 0 }
    }

    /// The fate of a run of 10 ms that begins some milliseconds after the start of the schedule.
    fn played(fault: Fault, instance: usize, began_ms: u32) -> Option<(Fate, Instant)> {
        let replay = Replay { first: 2, instances: 4, starts_in_ms: 1000, ..replay(vec![fault]) };
        let start = Instant::now();
        let mut playing = replay.play(start).unwrap();
        let start = start + 1000 * MS;
        Some((playing.fate(instance, &[], start + began_ms * MS, 10 * MS)?, start))
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
        let replay = Replay { instances: 4, starts_in_ms: 1000, ..replay(vec![hang]) };
        let now = Instant::now();
        assert_eq!(replay.play(now).unwrap().fate(0, &[], now, 10 * MS), None);
    }

    /// The milliseconds that a run of 10 ms on these rows takes on an instance.
    fn took(replay: &Replay, instance: usize, rows: &[f32]) -> f64 {
        let start = Instant::now();
        let inputs = [Tensor::from_f32([rows.len(), 1].as_slice(), rows).unwrap()];
        match replay.play(start).unwrap().fate(instance, &inputs, start, 10 * MS) {
            Some(Fate::Answers(at, false)) => (at - start).as_secs_f64() * 1e3,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn workers_agree_on_the_time_of_a_query() {
        let lengths =
            |first| Replay { scenario: Some("lengths".into()), first, instances: 4, ..replay(vec![]) };
        let one = |first, value| took(&lengths(first), 0, &[value]);
        let times: Vec<f64> = (0..40).map(|i| one(0, i as f32)).collect();
        assert!((0..40).all(|i| one(3, i as f32) == times[i]), "another worker, and so a copy of the query");
        assert!(
            times.windows(2).all(|pair| pair[0] != pair[1]),
            "each query has a factor of its own: {times:?}"
        );
        let longest = times[3..7].iter().fold(0.0, |longest: f64, time| longest.max(*time));
        assert_eq!(
            took(&lengths(1), 0, &[3., 4., 5., 6.]),
            longest,
            "a batch takes as long as its longest query"
        );
    }

    #[test]
    fn schedule_of_billions_of_instances_is_rejected() {
        let of = |instances| Replay { instances, ..replay(vec![]) }.check();
        assert_eq!(of(MOST_INSTANCES), Ok(()));
        let error = of(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("instances is 4294967295: give at most 65536"), "{error}");
    }

    #[test]
    fn scenario_is_named_and_combined_with_other_faults() {
        let twice = Fault::Slow { factor: 2.0, when: When::Always, on: Targets::Each };
        let hosts = Replay { scenario: Some("hosts".into()), instances: 12, ..replay(vec![twice]) };
        let slow = (0..12).map(|instance| took(&hosts, instance, &[1.0]).round()).collect::<Vec<_>>();
        assert_eq!(slow.iter().filter(|ms| **ms == 32.0).count(), 2, "1.6 times 2: {slow:?}");
        assert_eq!(slow.iter().filter(|ms| **ms == 20.0).count(), 10);
        let unknown = Replay { scenario: Some("mayhem".into()), ..replay(vec![]) };
        let error = unknown.check().unwrap_err().to_string();
        assert!(
            error.contains("'mayhem'") && error.contains("throttled") && error.contains("sick-gpu"),
            "{error}"
        );
    }

    fn tensor(rows: usize, values: &[f32]) -> Tensor {
        Tensor::from_f32([rows, values.len() / rows].as_slice(), values).unwrap()
    }

    #[test]
    fn row_has_the_same_name_alone_and_in_a_batch() {
        let (image, text) = (tensor(3, &[1., 2., 3., 4., 5., 6.]), tensor(3, &[7., 8., 9.]));
        let all: Vec<u64> = names(&[image.clone(), text.clone()]).collect();
        let alone = |row| {
            let inputs = [&image, &text].map(|input| input.slice_rows(row, 1).unwrap());
            names(&inputs).collect::<Vec<_>>()
        };
        assert_eq!([0, 1, 2].map(alone).concat(), all);
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert_ne!(
            names(&[image, tensor(3, &[7., 8., 0.])]).last(),
            all.last().copied(),
            "each input counts"
        );
    }
}
