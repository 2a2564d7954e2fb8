//! Counts the outcomes and latencies of one policy's queries.

use std::time::Duration;

use parm_loadgen::outcome::Outcome;
use parm_loadgen::recorder::Times;
use parm_loadgen::statistics::evidence;
use serde::Serialize;

/// Confidence with which a quantile must be supported before it is shown.
const CONFIDENCE: f64 = 0.95;

/// Fewer seconds have no meaningful median.
const LEAST_SECONDS: usize = 10;

/// The counts of one policy.
pub struct Tally {
    latencies: Times,
    counts: [Count; Outcome::ALL.len()],
    /// The longest latency of each second.
    slowest: Vec<Duration>,
}

/// Answers of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Count {
    /// Number of queries.
    pub queries: u64,
    /// Number of queries with the right class.
    pub right: u64,
}

impl Count {
    /// Returns the share of right answers; `None` without queries.
    pub fn accuracy(self) -> Option<f64> {
        (self.queries > 0).then(|| self.right as f64 / self.queries as f64)
    }

    fn with(self, other: Self) -> Self {
        Self { queries: self.queries + other.queries, right: self.right + other.right }
    }
}

/// The results of a policy so far.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    pub policy: &'static str,
    pub queries: u64,
    /// Milliseconds; `None` while there is too little data.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub exact: Count,
    pub hedged: Count,
    pub reconstructed: Count,
    pub stand_in: Count,
    pub missed: u64,
    /// Runs of instances, including parities, duplicates and stand-ins.
    pub runs: u64,
    /// Work in these runs: each counts with the measured cost of its model.
    pub work: f64,
    /// Milliseconds of the slowest query that was sent in each second.
    pub slowest_ms: Vec<f64>,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            latencies: Times::default(),
            counts: [Count::default(); Outcome::ALL.len()],
            slowest: Vec::new(),
        }
    }

    /// Records the end of a query that was scheduled `since` the start.
    pub fn record(&mut self, since: Duration, latency: Duration, outcome: Outcome, right: bool) {
        self.latencies.record(latency);
        let count = &mut self.counts[outcome as usize];
        count.queries += 1;
        count.right += u64::from(right);
        let second = since.as_secs() as usize;
        if self.slowest.len() <= second {
            self.slowest.resize(second + 1, Duration::ZERO);
        }
        self.slowest[second] = self.slowest[second].max(latency);
    }

    /// Returns the results so far.
    pub fn standing(&self, policy: &'static str, runs: u64, work: f64) -> Standing {
        let count = |outcome: Outcome| self.counts[outcome as usize];
        let queries = self.latencies.count();
        let quantile = |share| {
            let enough = queries >= evidence::needed(0, share, CONFIDENCE);
            enough.then(|| self.latencies.quantile(share).as_secs_f64() * 1e3)
        };
        Standing {
            policy,
            queries,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            exact: count(Outcome::Exact),
            hedged: count(Outcome::Hedged),
            reconstructed: count(Outcome::Reconstructed),
            stand_in: count(Outcome::StandIn),
            // The demo has neither default answers nor backup models, so these are all outcomes.
            missed: count(Outcome::Failed).queries,
            runs,
            work,
            slowest_ms: self.slowest.iter().map(|latency| latency.as_secs_f64() * 1e3).collect(),
        }
    }
}

impl Standing {
    /// Answers of the deployed model, from any instance.
    pub fn own(&self) -> Count {
        self.exact.with(self.hedged)
    }

    /// Answers that are approximate.
    pub fn approximate(&self) -> Count {
        self.reconstructed.with(self.stand_in)
    }

    /// All queries. One without an answer counts as wrong.
    pub fn all(&self) -> Count {
        let missed = Count { queries: self.missed, right: 0 };
        self.own().with(self.approximate()).with(missed)
    }

    /// Returns a count as a share of all queries.
    pub fn share(&self, queries: u64) -> f64 {
        queries as f64 / self.queries.max(1) as f64
    }

    /// Returns the work per ended query: 1 is one run of the deployed model.
    pub fn work_per_query(&self) -> f64 {
        self.work / self.queries.max(1) as f64
    }

    /// Returns the median over seconds of the slowest query, in milliseconds. A short pause of the machine moves p99.9 of every
    /// policy, but not this figure.
    pub fn usual_slowest_ms(&self) -> Option<f64> {
        let mut seconds = self.slowest_ms.clone();
        seconds.sort_unstable_by(f64::total_cmp);
        (seconds.len() >= LEAST_SECONDS).then(|| seconds[seconds.len() / 2])
    }

    /// Returns the gap from the median to p99.9, in milliseconds.
    pub fn gap_ms(&self) -> Option<f64> {
        Some(self.p999_ms? - self.p50_ms?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_data_and_missed_queries_count_as_wrong() {
        let mut tally = Tally::new();
        let ms = Duration::from_millis;
        for index in 0..100u64 {
            let missed = index % 10 == 0;
            let outcome = if missed { Outcome::Failed } else { Outcome::Exact };
            tally.record(ms(index * 30), ms(index + 1), outcome, !missed && index % 2 == 0);
        }
        let standing = tally.standing("equal", 120, 110.0);
        assert!(standing.p50_ms.is_some_and(|p50| (p50 - 50.0).abs() < 1.0), "{standing:?}");
        assert_eq!((standing.p99_ms, standing.p999_ms, standing.gap_ms()), (None, None, None));
        assert_eq!((standing.own().queries, standing.missed, standing.all().queries), (90, 10, 100));
        assert_eq!(standing.all().accuracy(), Some(0.4));
        assert_eq!((standing.slowest_ms.len(), standing.usual_slowest_ms()), (3, None));
        assert_eq!((standing.approximate().accuracy(), standing.work_per_query()), (None, 1.1));
    }

    #[test]
    fn one_slow_second_does_not_change_the_usual_slowest() {
        let mut tally = Tally::new();
        for second in 0..20 {
            let slowest = if second == 7 { 900 } else { 20 + second % 3 };
            for latency in [10, slowest] {
                let (since, latency) = (Duration::from_secs(second), Duration::from_millis(latency));
                tally.record(since, latency, Outcome::Exact, true);
            }
        }
        assert_eq!(tally.standing("hedge", 40, 40.0).usual_slowest_ms(), Some(21.0));
    }
}
