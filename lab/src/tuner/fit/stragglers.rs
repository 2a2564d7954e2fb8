//! Single slow jobs: on all instances alike, or many more on one of them.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_workload::distribution::Distribution;
use serde::Serialize;

use super::thinned;

/// Runs that take longer, independently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stragglers {
    /// Share of the runs.
    pub share: f64,
    /// The median factor of their times.
    pub median_factor: f64,
    /// The distribution of their factors.
    pub factor: Distribution,
}

/// The slow jobs of an instance among all its jobs.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) slow: Vec<f64>,
    pub(super) of: usize,
}

/// Fewest slow jobs of an instance that stalls, and how many times as many as expected from the others.
const LEAST: usize = 8;
const MORE: f64 = 5.0;
/// Most values that are kept.
const SAMPLE: usize = 1000;

impl Stragglers {
    /// Summarises the slow jobs among some jobs.
    pub(super) fn of(counted: Counted) -> Option<Self> {
        if counted.slow.is_empty() {
            return None;
        }
        let share = counted.slow.len() as f64 / counted.of as f64;
        let values = thinned(counted.slow, SAMPLE);
        let median_factor = quantile_of(&mut values.clone(), 0.5);
        Some(Self { share, median_factor, factor: Distribution::Sample { values } })
    }

    /// Separates the instances that stall from the others, which are taken together.
    pub(super) fn split(mut all: BTreeMap<u32, Counted>) -> (Option<Self>, BTreeMap<u32, Self>) {
        let count = |of: fn(&Counted) -> usize| all.values().map(of).sum::<usize>() as f64;
        let (slow, jobs) = (count(|counted| counted.slow.len()), count(|counted| counted.of));
        let stalls = |counted: &Counted| {
            let (own, of) = (counted.slow.len(), counted.of as f64);
            let expected = of * (slow - own as f64) / (jobs - of).max(1.0);
            own >= LEAST && jobs > of && own as f64 > MORE * expected.max(1.0)
        };
        let stalling: Vec<u32> =
            all.iter().filter(|(_, counted)| stalls(counted)).map(|(instance, _)| *instance).collect();
        let own =
            stalling.into_iter().filter_map(|instance| Some((instance, Self::of(all.remove(&instance)?)?)));
        let own = own.collect();
        let rest = all.into_values().fold(Counted::default(), |mut sum, counted| {
            sum.slow.extend(counted.slow);
            Counted { of: sum.of + counted.of, ..sum }
        });
        (Self::of(rest), own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalling(slow: [usize; 4]) -> Vec<u32> {
        let counted = |slow| Counted { slow: vec![10.0; slow], of: 1000 };
        let all = (0..).zip(slow.map(counted)).collect();
        Stragglers::split(all).1.into_keys().collect()
    }

    #[test]
    fn instance_stalls_if_its_slow_jobs_are_many_more() {
        assert_eq!(stalling([10, 12, 9, 11]), [0; 0]);
        assert_eq!(stalling([0, 7, 0, 0]), [0; 0], "seven can be chance");
        assert_eq!(stalling([1, 30, 0, 1]), [1]);
    }
}
