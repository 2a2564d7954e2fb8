//! Tells slowness that follows the query from slowness of a run, by the queries that ran twice.
//!
//! A copy starts because the first run is late. If run times follow the query, the copy takes as long; otherwise its time
//! has nothing to do with that of the first run. The slope of one logarithm over the other is near 1 or near 0.

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

/// Returns the number of queries that ran twice, and whether the times of jobs follow their queries, given the arrivals of
/// all queries.
pub(super) fn of(jobs: &[Timed], arrivals: &[f64]) -> (usize, Option<Lengths>) {
    let mut queries: BTreeMap<u64, [Option<f64>; 2]> = BTreeMap::new();
    for job in jobs {
        if let Some(arrived) = job.arrived.filter(|at| *at > 0.0) {
            queries.entry(micros(arrived)).or_default()[usize::from(job.copy)] = Some(job.factor);
        }
    }
    let logs = |runs: &[Option<f64>; 2]| Some((runs[0]?.ln(), runs[1]?.ln()));
    let pairs: Vec<(f64, f64)> = queries.values().filter_map(logs).collect();
    if pairs.len() < LEAST {
        return (pairs.len(), None);
    }
    let square: f64 = pairs.iter().map(|(first, _)| first * first).sum();
    let shared = pairs.iter().map(|(first, copy)| first * copy).sum::<f64>() / square;
    let factor = |at: &f64| {
        let runs = queries.get(&micros(*at)).copied().unwrap_or_default();
        runs[0].or(runs[1]).unwrap_or(1.0)
    };
    let factors = arrivals.iter().map(factor).collect();
    let follows =
        (shared >= FOLLOWS).then(|| Lengths { shared, sigma: own(&pairs), pairs: pairs.len(), factors });
    (pairs.len(), follows)
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

    fn found(copy: impl Fn(usize) -> f64) -> Option<Lengths> {
        let first = |number: usize| 1.0 + (number % 5) as f64;
        let arrivals: Vec<f64> = (1..=50).map(f64::from).collect();
        let run = |number: usize, copy: bool, factor: f64| {
            let arrived = Some(arrivals[number]);
            Timed { at: arrivals[number], took: factor, factor, arrived, copy }
        };
        let jobs: Vec<Timed> = (0..50)
            .flat_map(|number| [run(number, false, first(number)), run(number, true, copy(number))])
            .collect();
        of(&jobs, &arrivals).1
    }

    #[test]
    fn times_follow_the_query_if_copies_take_as_long() {
        let lengths = found(|number| 1.05 * (1.0 + (number % 5) as f64)).unwrap();
        assert!((lengths.shared - 1.0).abs() < 0.1 && lengths.pairs == 50, "{lengths:?}");
        assert_eq!(lengths.factors[..6], [1.0, 2.0, 3.0, 4.0, 5.0, 1.0]);
        assert_eq!(found(|_| 1.05), None);
    }
}
