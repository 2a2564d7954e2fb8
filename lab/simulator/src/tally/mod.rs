//! The result of a run: histograms of its latencies by block. Its size does not depend on the run's length.
//!
//! Neighbouring latencies share queues and interference, so intervals come from blocks of consecutive queries. Every run
//! has the same number of blocks, and a query's number decides its block. A block of two policies therefore holds the
//! same queries under the same faults, and their ratio can be resampled in pairs.

mod kept;

use std::time::Duration;

use hdrhistogram::Histogram;
use parm_workload::Outcome;
use serde::{Deserialize, Serialize};

pub use kept::KeptTally;

/// Blocks of a run.
pub const BLOCKS: u64 = 32;

/// Stretches of a run whose slowest query is kept.
pub const STRETCHES: u64 = 240;

/// A query that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Counted from 0, without the warm-up.
    pub number: u64,
    /// Nanoseconds.
    pub latency: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its answer is not the deployed model's.
    pub wrong: bool,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The latencies of each block.
    blocks: Vec<Histogram<u32>>,
    counts: Counts,
}

/// What is counted besides the latencies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    expected: u64,
    deadline: u64,
    /// The sum of the latencies of each block.
    sums: Vec<u64>,
    outcomes: Vec<u64>,
    wrong: Vec<u64>,
    graded: bool,
    /// The slowest query of every stretch of the run, in nanoseconds.
    slowest: Vec<u64>,
    /// Work in millionths of a job.
    deployed: u64,
    extra: u64,
    busy: u64,
    capacity: u64,
    most_in_flight: usize,
}

/// The histograms distinguish latencies to three digits, from a microsecond to an hour.
const SHORTEST: u64 = 1 << 10;
const LONGEST: u64 = 3_600_000_000_000;
/// The work of a job, in its millionths: a tally in a file has whole numbers only, which are read as they were written.
const WHOLE: f64 = 1e6;

impl Tally {
    /// Creates an empty tally of a run of this many queries with this deadline.
    pub fn new(expected: u64, deadline: Duration) -> Self {
        let latencies = Histogram::new_with_bounds(SHORTEST, LONGEST, 3);
        let latencies = latencies.unwrap_or_else(|_| unreachable!("the bounds are constants"));
        let counts = Counts {
            expected,
            deadline: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            sums: vec![0; BLOCKS as usize],
            outcomes: vec![0; Outcome::ALL.len()],
            wrong: vec![0; Outcome::ALL.len()],
            graded: false,
            slowest: vec![0; STRETCHES as usize],
            deployed: 0,
            extra: 0,
            busy: 0,
            capacity: 0,
            most_in_flight: 0,
        };
        Self { blocks: vec![latencies; BLOCKS as usize], counts }
    }

    /// Counts a query. One without a prediction is as late as its deadline: early rejection must not make a tail look
    /// short.
    pub fn ended(&mut self, ended: Ended) {
        let Ended { number, latency, outcome, wrong } = ended;
        let counts = &mut self.counts;
        let counted = if outcome == Outcome::Failed { latency.max(counts.deadline) } else { latency };
        let part = |parts: u64| {
            let part = (number as f64 / counts.expected as f64 * parts as f64) as usize;
            part.min(parts as usize - 1)
        };
        let (block, stretch) = (part(BLOCKS), part(STRETCHES));
        self.blocks[block].saturating_record(counted);
        counts.sums[block] += counted;
        counts.slowest[stretch] = counted.max(counts.slowest[stretch]);
        counts.outcomes[outcome as usize] += 1;
        counts.wrong[outcome as usize] += u64::from(wrong);
    }

    /// Counts a started job, for queries without a job or as redundancy. Its work is in jobs of the deployed model.
    pub fn started(&mut self, deployed: bool, work: f64) {
        let counts = &mut self.counts;
        let sum = if deployed { &mut counts.deployed } else { &mut counts.extra };
        *sum += (work * WHOLE).round() as u64;
    }

    /// Ends the run.
    pub fn finish(&mut self, busy: u64, capacity: u64, most_in_flight: usize) {
        let counts = &mut self.counts;
        (counts.busy, counts.capacity, counts.most_in_flight) = (busy, capacity, most_in_flight);
    }

    /// Returns the number of counted queries.
    pub fn count(&self) -> u64 {
        self.counts.outcomes.iter().sum()
    }

    /// Returns the share of the queries with this outcome.
    pub fn share(&self, outcome: Outcome) -> f64 {
        self.counts.outcomes[outcome as usize] as f64 / self.count().max(1) as f64
    }

    /// Returns the share of the queries with a wrong answer because of the fault schedule. A failed query has none.
    pub fn wrong(&self) -> f64 {
        let answers = Outcome::ALL.iter().filter(|outcome| outcome.is_answer());
        let wrong: u64 = answers.map(|outcome| self.counts.wrong[*outcome as usize]).sum();
        wrong as f64 / self.count().max(1) as f64
    }

    /// Returns the queries with this outcome, and those of them with a right answer. `None` for approximate answers that
    /// were not compared with anything, as in a simulation.
    pub fn right(&self, outcome: Outcome) -> Option<(u64, u64)> {
        let [ended, wrong] = [&self.counts.outcomes, &self.counts.wrong].map(|of| of[outcome as usize]);
        (self.counts.graded || !outcome.is_approximate()).then(|| (ended, ended - wrong))
    }

    /// The same, for a run whose answers are all compared with the deployed model's.
    pub fn graded(mut self) -> Self {
        self.counts.graded = true;
        self
    }

    /// Returns the number of queries of the whole run.
    pub fn expected(&self) -> u64 {
        self.counts.expected
    }

    /// Returns the slowest query of every stretch of the run, in nanoseconds; 0 where none ended.
    pub fn slowest(&self) -> &[u64] {
        &self.counts.slowest
    }

    /// Returns the redundant work as a share of the necessary work (in jobs of the deployed model without faults).
    pub fn extra(&self) -> f64 {
        self.counts.extra as f64 / (self.counts.deployed as f64).max(WHOLE)
    }

    /// Returns the share of the instances' time that they worked.
    pub fn utilisation(&self) -> f64 {
        self.counts.busy as f64 / self.counts.capacity.max(1) as f64
    }

    /// Returns the largest number of unanswered queries at a time.
    pub fn most_in_flight(&self) -> usize {
        self.counts.most_in_flight
    }

    /// Returns the mean latency in seconds and its standard error, from the means of the blocks.
    pub fn mean(&self) -> (f64, f64) {
        let means: Vec<f64> = self
            .blocks
            .iter()
            .zip(&self.counts.sums)
            .filter(|(block, _)| !block.is_empty())
            .map(|(block, sum)| *sum as f64 / block.len() as f64 / 1e9)
            .collect();
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let variance = means.iter().map(|block| (block - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, (variance / count).sqrt())
    }

    /// Returns the blocks' latencies in nanoseconds with how often they occurred, in order.
    pub fn blocks(&self) -> impl Iterator<Item = Vec<(u64, u32)>> {
        self.blocks.iter().map(|block| {
            let middle = |value| block.median_equivalent(value);
            block.iter_recorded().map(|v| (middle(v.value_iterated_to()), v.count_at_value())).collect()
        })
    }

    /// Returns the size of the histograms in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.distinct_values() * size_of::<u32>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(count: u64) -> Tally {
        let mut tally = Tally::new(count, Duration::from_secs(1));
        for number in 0..count {
            let outcome = if number % 10 == 0 { Outcome::Failed } else { Outcome::Exact };
            tally.ended(Ended { number, latency: 20_000_000 + number, outcome, wrong: false });
        }
        tally
    }

    #[test]
    fn tally_size_does_not_depend_on_the_length_of_the_run() {
        assert_eq!(tally(1000).bytes(), tally(100_000).bytes());
        assert!(tally(1000).bytes() < 5_000_000);
    }

    #[test]
    fn failed_queries_count_as_late_as_their_deadline() {
        let tally = tally(3200);
        let blocks: Vec<_> = tally.blocks().collect();
        assert!(blocks.iter().all(|block| block.iter().map(|(_, count)| count).sum::<u32>() == 100));
        let late = blocks[0].last().unwrap();
        assert!((late.0 as f64 / 1e9 - 1.0).abs() < 1e-3 && late.1 == 10);
        assert!((tally.share(Outcome::Failed) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn failed_query_does_not_count_as_a_wrong_answer() {
        let mut tally = Tally::new(1300, Duration::from_secs(1)).graded();
        for number in 0..1300 {
            let outcome = if number == 7 { Outcome::Failed } else { Outcome::Exact };
            let wrong = number == 7 || (100..134).contains(&number);
            tally.ended(Ended { number, latency: 20_000_000, outcome, wrong });
        }
        assert!((tally.wrong() - 34.0 / 1300.0).abs() < 1e-12, "{}", tally.wrong());
    }
}
