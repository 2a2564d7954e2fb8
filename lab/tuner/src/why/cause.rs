//! The causes of a tail, and a profile without each of them.

use std::collections::BTreeSet;

use parm_workload::distribution::Distribution;
use serde::Serialize;

use crate::Profile;
use crate::fit::Episodes;

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Some instances are slower than the others, all the time or for a while.
    SlowInstances {
        /// The instances, counted from 0.
        instances: Vec<u32>,
    },
    /// All instances are slow for a while, in turn.
    Interference,
    /// Instances make no progress for a while.
    Stalls {
        /// The instances; empty for all.
        instances: Vec<u32>,
    },
    /// Some queries take longer than others, on each instance.
    LongInputs,
    /// Service times vary from run to run.
    WideTimes,
    /// Queries wait for an instance.
    Queueing,
}

impl Cause {
    /// Returns the causes that a profile can have.
    pub(super) fn all(profile: &Profile) -> Vec<Self> {
        let slow = slow(profile);
        let slow = (!slow.is_empty()).then(|| Self::SlowInstances { instances: slow.into_iter().collect() });
        let interference =
            profile.interference.as_ref().filter(|found| found.only.is_empty()).map(|_| Self::Interference);
        let times = if profile.lengths.is_some() { Self::LongInputs } else { Self::WideTimes };
        let stalls = stalls(profile);
        let found = [slow, interference, stalls, Some(times), Some(Self::Queueing)];
        found.into_iter().flatten().collect()
    }

    /// Returns the profile without the cause.
    pub(super) fn removed(&self, profile: &Profile) -> Profile {
        let mut left = profile.clone();
        match self {
            Self::SlowInstances { .. } => {
                left.lasting.retain(|lasting| lasting.factor <= 1.0);
                left.interference = left.interference.filter(|found| found.only.is_empty());
            }
            Self::Interference => left.interference = None,
            Self::Stalls { .. } => {
                left.hangs = None;
                left.stalls.clear();
            }
            Self::LongInputs => left.lengths = None,
            Self::WideTimes => {
                let value = median(&left.service.time_ms);
                left.service.time_ms = Distribution::Constant { value };
                left.stragglers = None;
            }
            Self::Queueing => {}
        }
        left
    }

    /// Returns the number of instances to add.
    pub(super) fn further(&self) -> u32 {
        u32::from(*self == Self::Queueing)
    }
}

/// Returns the instances that are slower than the others, all the time or for a while.
fn slow(profile: &Profile) -> BTreeSet<u32> {
    let lasting =
        profile.lasting.iter().filter(|lasting| lasting.factor > 1.0).map(|lasting| lasting.instance);
    let sometimes = profile.interference.iter().flat_map(|found| found.only.iter().copied());
    lasting.chain(sometimes).collect()
}

fn stalls(profile: &Profile) -> Option<Cause> {
    let own: BTreeSet<u32> = profile.stalls.keys().copied().collect();
    let only = |hangs: &Episodes| hangs.only.iter().copied().collect::<BTreeSet<u32>>();
    let instances = match profile.hangs.as_ref().map(only) {
        None if own.is_empty() => return None,
        None => own,
        Some(hung) if hung.is_empty() => hung,
        Some(hung) => hung.union(&own).copied().collect(),
    };
    Some(Cause::Stalls { instances: instances.into_iter().collect() })
}

fn median(times: &Distribution) -> f64 {
    match times {
        Distribution::Sample { values } => {
            parm_loadgen::statistics::bootstrap::quantile_of(&mut values.clone(), 0.5)
        }
        other => other.mean(),
    }
}
