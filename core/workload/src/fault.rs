//! The format of faults in a configuration file: what goes wrong, when, and on which instances.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parm_durations::Millis;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::{Error, numbers};
use parm_random::Random;

/// All faults of a run. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Faults(pub Vec<Fault>);

/// A fault. Slowdowns of several faults multiply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[serde(expecting = "a table such as { kind = \"slow\", factor = 2.0, when = { kind = \"always\" } }")]
pub enum Fault {
    /// Some runs take longer: garbage collection, a cold cache, a long input, a slow machine.
    Straggle {
        /// Share of the affected runs, queries or instances, 0 to 1. Default 1.
        #[serde(default = "one")]
        share: f64,
        /// How many times as long they take.
        factor: Distribution,
        /// Whether each run, each query or each instance draws a factor of its own. Default: each run.
        #[serde(default)]
        by: By,
        /// Affected instances. Default: each.
        #[serde(default)]
        on: Targets,
    },
    /// An instance is slower for a while: a neighbour, a throttled core, a second tenant.
    Slow {
        /// How many times as long its runs take meanwhile.
        factor: f64,
        /// When.
        when: When,
        /// Affected instances. Default: each, at times of its own.
        #[serde(default)]
        on: Targets,
    },
    /// An instance is slower or faster over time, as it was measured.
    Pace {
        /// Milliseconds that a factor lasts.
        #[serde(rename = "step_ms", with = "Millis")]
        step: Duration,
        /// Series of factors: how many times as long runs take, step by step, then from the beginning again. The first
        /// affected instance takes the first series; further instances take the first ones again. `on = { only = [..] }`
        /// takes them in the listed order, otherwise the seed draws the order of the instances.
        #[serde(default)]
        series: Vec<Vec<f64>>,
        /// File with the series instead: a line per step, a number per instance in it. Experiment files only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// Affected instances. Default: each.
        #[serde(default)]
        on: Targets,
    },
    /// Run times follow the query: the n-th query of a run has the n-th factor on every instance, then from the first
    /// again. A worker does not know a query's number and takes the factor that a hash of its inputs selects.
    Sizes {
        /// How many times as long the queries take.
        #[serde(default)]
        factors: Vec<f64>,
        /// File with the factors instead. Experiment files only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// Affected instances. Default: each.
        #[serde(default)]
        on: Targets,
    },
    /// Pairs of instances transfer data to each other, always this many pairs at a time, and share their links with
    /// queries.
    Shuffles {
        /// Concurrent pairs.
        concurrent: u32,
        /// Least size of a transfer in megabytes. Default 128.
        #[serde(default = "least_mb")]
        min_mb: f64,
        /// Greatest size of a transfer in megabytes. Default 256.
        #[serde(default = "most_mb")]
        max_mb: f64,
        /// Bandwidth of an instance's link in megabits per second, shared by the transfers that use it. Default 1000.
        #[serde(default = "gigabit")]
        link_mbps: f64,
        /// How many times as long runs take on an instance with one transfer; every further transfer adds as much again.
        factor: f64,
    },
    /// An instance makes no progress for a while without reporting it, and then continues.
    Hang {
        /// When.
        when: When,
        /// Affected instances. Default: each, at times of its own.
        #[serde(default)]
        on: Targets,
    },
    /// An instance works and is unreachable for a while: no query reaches it, and its answers arrive afterwards.
    Partition {
        /// When.
        when: When,
        /// Affected instances. Default: each, at times of its own.
        #[serde(default)]
        on: Targets,
    },
    /// An instance crashes and loses its jobs, is down while it restarts, and is slow at first.
    Crash {
        /// When; the length is that of the restart.
        when: When,
        /// Affected instances. Default: each, at times of its own.
        #[serde(default)]
        on: Targets,
        /// How many times as long runs take at first. Default 1.
        #[serde(default = "one")]
        slow_start: f64,
        /// Milliseconds for which they do. Default 0.
        #[serde(rename = "slow_start_ms", with = "Millis", default)]
        slow_start_for: Duration,
    },
    /// Some answers are wrong, though they arrive in time.
    Wrong {
        /// Share of the affected runs, 0 to 1.
        share: f64,
        /// When.
        when: When,
        /// Affected instances. Default: each, at times of its own.
        #[serde(default)]
        on: Targets,
    },
}

/// Which of them draw a factor each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Every run: a copy of a query can be fast where the first run was slow.
    #[default]
    Run,
    /// Every query: a copy, a stand-in or a retry takes as long as the first run. A batch takes as long as its longest
    /// query, and a parity as the longest query of its group.
    Query,
    /// Every instance, once: it keeps the factor for the whole run.
    Instance,
}

impl Faults {
    /// Rejects faults that are impossible on this many instances.
    pub fn check(&self, instances: u32) -> Result<(), Error> {
        self.0.iter().enumerate().try_for_each(|(index, fault)| {
            fault.on().check(index, instances)?;
            fault.when().map_or(Ok(()), |when| when.check(index))?;
            fault.check(index)
        })
    }

    /// Whether run times follow the query.
    pub fn follow_queries(&self) -> bool {
        let follows =
            |fault: &Fault| matches!(fault, Fault::Sizes { .. } | Fault::Straggle { by: By::Query, .. });
        self.0.iter().any(follows)
    }
}

impl Fault {
    /// Returns the affected instances.
    pub fn on(&self) -> &Targets {
        match self {
            Fault::Straggle { on, .. }
            | Fault::Slow { on, .. }
            | Fault::Pace { on, .. }
            | Fault::Sizes { on, .. }
            | Fault::Hang { on, .. }
            | Fault::Partition { on, .. }
            | Fault::Crash { on, .. }
            | Fault::Wrong { on, .. } => on,
            Fault::Shuffles { .. } => &Targets::Each,
        }
    }

    /// Returns the times of the fault, if it has any.
    pub fn when(&self) -> Option<&When> {
        match self {
            Fault::Slow { when, .. }
            | Fault::Hang { when, .. }
            | Fault::Partition { when, .. }
            | Fault::Crash { when, .. }
            | Fault::Wrong { when, .. } => Some(when),
            Fault::Straggle { .. } | Fault::Pace { .. } | Fault::Sizes { .. } | Fault::Shuffles { .. } => {
                None
            }
        }
    }

    /// Replaces files by the numbers in them.
    pub(crate) fn read_files(&mut self, folder: &Path) -> Result<(), Error> {
        match self {
            Fault::Straggle { factor, .. } => factor.read_file(folder)?,
            Fault::Pace { series, file, .. } => {
                if let Some(path) = file.take() {
                    *series = numbers::from_file(folder, &path, numbers::columns)?;
                }
            }
            Fault::Sizes { factors, file, .. } => {
                if let Some(path) = file.take() {
                    *factors = numbers::from_file(folder, &path, numbers::numbers)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, fault: usize) -> Result<(), Error> {
        if let Fault::Pace { file: Some(path), .. } | Fault::Sizes { file: Some(path), .. } = self {
            return Err(Error::NotRead { path: path.clone() });
        }
        let within = |name, value: f64, least: f64, most: f64, range| {
            let fine = (least..=most).contains(&value);
            if fine { Ok(()) } else { Err(Error::BadFault { fault, name, value, range }) }
        };
        let share = |value| within("share", value, 0.0, 1.0, "from 0 to 1");
        let factor = |name, value| within(name, value, 0.01, 1e6, "from 0.01 to 1e6");
        let positive = |name, value| within(name, value, 1e-6, 1e12, "above 0");
        match self {
            Fault::Straggle { share: runs, factor, .. } => share(*runs).and_then(|()| factor.check()),
            Fault::Slow { factor: times, .. } => factor("factor", *times),
            Fault::Pace { step, series, .. } => {
                within("step_ms", step.as_secs_f64() * 1e3, 1.0, 1e12, "of at least 1")?;
                within("number of series", series.len() as f64, 1.0, 1e6, "from 1 to 1e6")?;
                series.iter().try_for_each(|factors| {
                    within("number of factors in a series", factors.len() as f64, 1.0, 1e7, "from 1 to 1e7")?;
                    factors.iter().try_for_each(|times| factor("factor in `series`", *times))
                })
            }
            Fault::Sizes { factors, .. } => {
                within("number of `factors`", factors.len() as f64, 1.0, 1e7, "from 1 to 1e7")?;
                // Sizes vary widely: a short input takes a small part of the mean.
                let size = |value| within("factor in `factors`", value, 1e-6, 1e6, "from 1e-6 to 1e6");
                factors.iter().try_for_each(|times| size(*times))
            }
            Fault::Shuffles { min_mb, max_mb, link_mbps, factor: times, .. } => {
                positive("min_mb", *min_mb)?;
                within("max_mb", *max_mb, *min_mb, 1e12, "of at least min_mb")?;
                positive("link_mbps", *link_mbps)?;
                within("factor", *times, 1.0, 1e6, "from 1 to 1e6")
            }
            Fault::Crash { slow_start, .. } => factor("slow_start", *slow_start),
            Fault::Wrong { share: runs, .. } => share(*runs),
            Fault::Hang { .. } | Fault::Partition { .. } => Ok(()),
        }
    }
}

fn one() -> f64 {
    1.0
}

fn least_mb() -> f64 {
    128.0
}

fn most_mb() -> f64 {
    256.0
}

fn gigabit() -> f64 {
    1000.0
}

/// The times of a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[serde(expecting = "a table such as { kind = \"always\" }")]
pub enum When {
    /// The whole run.
    Always,
    /// Once.
    Once {
        /// Milliseconds from the start of the run.
        #[serde(rename = "at_ms", with = "Millis")]
        at: Duration,
        /// Milliseconds that it lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
    /// Repeatedly, at a fixed interval.
    Every {
        /// Milliseconds from the start of the run to the first time.
        #[serde(rename = "at_ms", with = "Millis")]
        at: Duration,
        /// Milliseconds from one start to the next.
        #[serde(rename = "every_ms", with = "Millis")]
        every: Duration,
        /// Milliseconds that each lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
    /// At random: episodes of one length between exponential pauses, in equilibrium from the start.
    Episodes {
        /// Share of the time that they take up.
        share: f64,
        /// Milliseconds that each lasts.
        #[serde(rename = "length_ms", with = "Millis")]
        length: Duration,
    },
}

impl When {
    /// Rejects times that overlap or never end.
    fn check(&self, fault: usize) -> Result<(), Error> {
        let bad = |name, value, range| Err(Error::BadFault { fault, name, value, range });
        match *self {
            When::Episodes { share, .. } if !(0.0..1.0).contains(&share) => {
                bad("share", share, "from 0 to below 1: use `always` for the whole run")
            }
            When::Episodes { length, .. } | When::Once { length, .. } if length.is_zero() => {
                bad("length_ms", 0.0, "above 0")
            }
            When::Every { every, length, .. } if length.is_zero() || length >= every => {
                bad("length_ms", length.as_millis() as f64, "above 0 and below every_ms")
            }
            _ => Ok(()),
        }
    }
}

/// The instances of a fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Targets {
    /// Each, at times of its own.
    #[default]
    Each,
    /// The listed ones, counted from 0, each at times of its own.
    Only(Vec<u32>),
    /// This many of them, chosen by the seed, each at times of its own.
    Count(u32),
    /// This share of them, chosen by the seed, each at times of its own.
    Some(f64),
    /// This share of them, chosen by the seed, all at the same times: a rack, a switch, a shared machine.
    Together(f64),
}

impl Targets {
    /// Returns the affected instances: in the listed order, otherwise in an order drawn for this fault. Shares are
    /// rounded to whole instances, at least one.
    pub(crate) fn chosen(&self, fault: Place) -> Vec<u32> {
        let count = match self {
            Targets::Only(instances) => return instances.clone(),
            Targets::Each => fault.instances,
            Targets::Count(count) => *count,
            Targets::Some(share) | Targets::Together(share) => {
                (share * f64::from(fault.instances)).round().max(1.0) as u32
            }
        };
        let rank = |instance: &u32| {
            (Random::of(fault.seed, [CHOICE, fault.index as u64, u64::from(*instance)]).bits(), *instance)
        };
        let mut instances: Vec<u32> = (0..fault.instances).collect();
        instances.sort_by_cached_key(rank);
        instances.truncate(count as usize);
        instances
    }

    /// Returns the name of the times of this instance: instances of one name share them.
    pub(crate) fn times_of(&self, instance: u32) -> u64 {
        match self {
            Targets::Together(_) => u64::MAX,
            Targets::Each | Targets::Only(_) | Targets::Count(_) | Targets::Some(_) => u64::from(instance),
        }
    }

    fn check(&self, fault: usize, instances: u32) -> Result<(), Error> {
        match self {
            Targets::Each => Ok(()),
            Targets::Only(named) => match named.iter().find(|instance| **instance >= instances) {
                Some(instance) => Err(Error::NoSuchInstance { fault, instance: *instance, instances }),
                None => Ok(()),
            },
            Targets::Count(count) if (1..=instances).contains(count) => Ok(()),
            Targets::Count(count) => {
                let value = f64::from(*count);
                Err(Error::BadFault {
                    fault,
                    name: "on.count",
                    value,
                    range: "from 1 to the number of instances",
                })
            }
            Targets::Some(share) | Targets::Together(share) if (0.0..=1.0).contains(share) => Ok(()),
            Targets::Some(share) | Targets::Together(share) => {
                Err(Error::BadFault { fault, name: "on", value: *share, range: "from 0 to 1" })
            }
        }
    }
}

/// The position of a fault in its list, which names its random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) seed: u64,
    pub(crate) index: usize,
    pub(crate) instances: u32,
}

const CHOICE: u64 = 0x7A26;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(fault: Fault) -> Option<Error> {
        Faults(vec![fault]).check(4).err()
    }

    #[test]
    fn impossible_fault_is_rejected_by_name() {
        let factor = Distribution::Constant { value: 5.0 };
        let straggle = Fault::Straggle { share: 1.5, factor, by: By::Run, on: Targets::Each };
        let error = Error::BadFault { fault: 0, name: "share", value: 1.5, range: "from 0 to 1" };
        assert_eq!(refused(straggle), Some(error));
        let elsewhere = Fault::Hang { when: When::Always, on: Targets::Only(vec![1, 4]) };
        assert_eq!(refused(elsewhere), Some(Error::NoSuchInstance { fault: 0, instance: 4, instances: 4 }));
        let when = When::Episodes { share: 1.0, length: Duration::from_millis(5) };
        let always = Fault::Slow { factor: 5.0, when, on: Targets::Each };
        let range = "from 0 to below 1: use `always` for the whole run";
        assert_eq!(refused(always), Some(Error::BadFault { fault: 0, name: "share", value: 1.0, range }));
        let small = Fault::Shuffles { concurrent: 4, min_mb: 9.0, max_mb: 3.0, link_mbps: 1.0, factor: 2.0 };
        assert!(matches!(refused(small), Some(Error::BadFault { name: "max_mb", .. })));
        let ms = Duration::from_millis;
        let pace = |series| Fault::Pace { step: ms(5), series, file: None, on: Targets::Each };
        assert!(matches!(
            refused(pace(vec![vec![1.0], vec![]])),
            Some(Error::BadFault { name: "number of factors in a series", .. })
        ));
        assert!(matches!(
            refused(pace(vec![vec![1.0, 0.0]])),
            Some(Error::BadFault { name: "factor in `series`", .. })
        ));
    }

    #[test]
    fn seed_chooses_the_stated_share_of_instances() {
        let chosen = |seed| {
            let place = Place { seed, index: 0, instances: 18 };
            Targets::Some(1.0 / 9.0).chosen(place)
        };
        assert!((0..20).all(|seed| chosen(seed).len() == 2));
        assert_eq!(chosen(1), chosen(1));
        assert!((2..20).any(|seed| chosen(seed) != chosen(1)));
    }

    #[test]
    fn count_chooses_instances_in_pools_of_any_size() {
        for instances in [1, 3, 12, 50] {
            let place = Place { seed: 5, index: 0, instances };
            assert_eq!(Targets::Count(1).chosen(place).len(), 1);
            assert_eq!(Targets::Each.chosen(place).len(), instances as usize);
        }
        assert!(Targets::Count(3).check(0, 3).is_ok() && Targets::Count(4).check(0, 3).is_err());
        let place = Place { seed: 5, index: 0, instances: 9 };
        assert_eq!(Targets::Only(vec![7, 2]).chosen(place), [7, 2], "in the listed order");
    }
}
