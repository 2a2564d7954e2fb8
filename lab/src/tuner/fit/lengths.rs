//! Tells slowness that follows the query from slowness of a run, by the queries that ran twice.
//!
//! A copy starts because the first run is late. If run times follow the query, the copy takes as long; otherwise its time
//! has nothing to do with that of the first run. The slope of one logarithm over the other is near 1 or near 0.
//!
//! A pause of the machine and a slow instance also make both runs long, so such pairs say nothing about the query. A pair
//! counts if both runs had instances of the usual speed, and most other jobs of that moment were not slow.

use std::collections::BTreeMap;

use parm_loadgen::statistics::bootstrap::quantile_of;
use serde::Serialize;

use super::episodes::Timed;

/// Run times that follow the query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// The slope: the part of a query's slowness that its copy shares.
    pub shared: f64,
    /// Standard deviation of the logarithm of a run's own part.
    pub sigma: f64,
    /// Number of queries that ran twice.
    pub pairs: usize,
    /// The factor of each recorded query, in order of arrival.
    #[serde(skip)]
    pub factors: Vec<f64>,
}

/// Fewest pairs for a slope.
pub(crate) const LEAST: usize = 20;
/// Least slope at which run times follow the query.
const FOLLOWS: f64 = 0.5;

/// Most jobs of an instance that are compared with a pair: it holds few at a time.
const AT_ONCE: usize = 8;

/// The jobs of a recording, for [`of`].
pub(super) struct TimedRuns<'a> {
    /// Jobs outside of episodes, by instance.
    pub(super) others: &'a BTreeMap<u32, Vec<Timed>>,
    /// All jobs, by instance, in order.
    pub(super) all: &'a BTreeMap<u32, Vec<Timed>>,
    /// The instances whose speed differs from the others'.
    pub(super) lasting: &'a BTreeMap<u32, f64>,
    /// Multiple of the usual time from which a job is slow.
    pub(super) slow: f64,
}

/// Returns the number of queries that ran twice and count, and whether the times of jobs follow their queries, given the
/// arrivals of all queries.
pub(super) fn of(runs: &TimedRuns<'_>, arrivals: &[f64]) -> (usize, Option<Lengths>) {
    let mut queries: BTreeMap<u64, [Option<(u32, Timed)>; 2]> = BTreeMap::new();
    for (instance, job) in runs.others.iter().flat_map(|(at, jobs)| jobs.iter().map(move |job| (*at, *job))) {
        if let Some(query) = job.arrived.filter(|at| *at > 0.0).map(micros) {
            queries.entry(query).or_default()[usize::from(job.copy)] = Some((instance, job));
        }
    }
    let logs = |found: &[Option<(u32, Timed)>; 2]| {
        let pair = [found[0]?, found[1]?];
        let usual = pair.iter().all(|(instance, _)| !runs.lasting.contains_key(instance));
        let [first, copy] = pair.map(|(_, job)| job);
        (usual && !runs.pause(&first, &copy)).then(|| (first.factor.ln(), copy.factor.ln()))
    };
    let pairs: Vec<(f64, f64)> = queries.values().filter_map(logs).collect();
    if pairs.len() < LEAST {
        return (pairs.len(), None);
    }
    let square: f64 = pairs.iter().map(|(first, _)| first * first).sum();
    let shared = pairs.iter().map(|(first, copy)| first * copy).sum::<f64>() / square;
    let factor = |at: &f64| {
        let found = queries.get(&micros(*at)).copied().unwrap_or_default();
        found[0].or(found[1]).map_or(1.0, |(_, job)| job.factor)
    };
    let factors = arrivals.iter().map(factor).collect();
    let follows =
        (shared >= FOLLOWS).then(|| Lengths { shared, sigma: own(&pairs), pairs: pairs.len(), factors });
    (pairs.len(), follows)
}

impl TimedRuns<'_> {
    /// Whether most jobs of other queries were slow while both runs of a query lasted.
    fn pause(&self, first: &Timed, copy: &Timed) -> bool {
        let ends = |job: &Timed| job.at + job.took;
        let (from, to) = (first.at.max(copy.at), ends(first).min(ends(copy)));
        let (mut slow, mut of) = (0, 0);
        for jobs in self.all.values() {
            let before = &jobs[..jobs.partition_point(|job| job.at < to)];
            let same = before.iter().rev().take(AT_ONCE).filter(|job| ends(job) > from);
            for job in same.filter(|job| job.arrived != first.arrived) {
                of += 1;
                slow += usize::from(job.factor > self.slow);
            }
        }
        2 * slow > of
    }
}

/// Returns the spread of a run's own part: the two runs of a query differ by two of these.
fn own(pairs: &[(f64, f64)]) -> f64 {
    let mut apart: Vec<f64> = pairs.iter().map(|(first, copy)| copy - first).collect();
    let [low, high] = [0.16, 0.84].map(|share| quantile_of(&mut apart, share));
    0.5 * (high - low) / std::f64::consts::SQRT_2
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: usize, copy: bool, factor: f64) -> Timed {
        let at = number as f64 + 1.0;
        Timed { at, took: 0.1 * factor, factor, arrived: Some(at), copy }
    }

    fn first(number: usize) -> f64 {
        1.0 + (number % 5) as f64
    }

    /// First runs on one instance, copies on another, and all jobs of a third.
    fn found(copy: impl Fn(usize) -> f64, lasting: &[u32], third: impl Fn(usize) -> f64) -> Option<Lengths> {
        let jobs = |copy, factor: &dyn Fn(usize) -> f64| (0..50).map(|n| run(n, copy, factor(n))).collect();
        let others = BTreeMap::from([(0, jobs(false, &first)), (1, jobs(true, &copy))]);
        let other = |n| Timed { arrived: None, ..run(n, false, third(n)) };
        let mut all = others.clone();
        all.insert(2, (0..50).map(other).collect());
        let arrivals: Vec<f64> = (1..=50).map(f64::from).collect();
        let lasting = lasting.iter().map(|instance| (*instance, 2.4)).collect();
        of(&TimedRuns { others: &others, all: &all, lasting: &lasting, slow: 1.5 }, &arrivals).1
    }

    #[test]
    fn times_follow_the_query_if_copies_take_as_long() {
        let lengths = found(|number| 1.05 * first(number), &[], |_| 1.0).unwrap();
        assert!((lengths.shared - 1.0).abs() < 0.1 && lengths.pairs == 50, "{lengths:?}");
        assert_eq!(lengths.factors[..6], [1.0, 2.0, 3.0, 4.0, 5.0, 1.0]);
        assert_eq!(found(|_| 1.05, &[], |_| 1.0), None);
    }

    #[test]
    fn pairs_in_a_pause_or_on_a_slow_instance_do_not_count() {
        assert_eq!(found(first, &[0], |_| 1.0), None);
        assert_eq!(found(first, &[1], |_| 1.0), None);
        assert_eq!(found(first, &[], first), None, "the third instance was as slow");
    }
}
