//! The result of a run: its latencies by block, rounded to three digits, so that its size does not depend on the run's length.
//!
//! Neighbouring latencies share queues and interference, so intervals come from blocks of consecutive queries. Every run
//! has the same number of blocks, and a query's number decides its block. A block of two policies therefore holds the
//! same queries under the same faults, and their ratio can be resampled in pairs. All values are whole numbers, which a file
//! returns exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_workload::Outcome;
use serde::{Deserialize, Serialize};

/// Blocks of a run.
const BLOCKS: usize = 32;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// How often each latency occurred in each block.
    blocks: [BTreeMap<u64, u32>; BLOCKS],
    expected: u64,
    deadline: u64,
    /// The sum of the latencies of each block.
    sums: [u64; BLOCKS],
    outcomes: [u64; Outcome::ALL.len()],
    wrong: [u64; Outcome::ALL.len()],
    graded: bool,
    /// Work in millionths of a job.
    deployed: u64,
    extra: u64,
    busy: u64,
    capacity: u64,
}

/// Latencies are distinguished to three digits, from a microsecond to an hour.
const FINEST: u32 = 10;
const DIGITS: u32 = 11;
const LONGEST: u64 = 3_600_000_000_000;
/// The work of a job, in its millionths.
const WHOLE: f64 = 1e6;

/// Returns the binary logarithm of the width of the step in which a latency is.
fn width(latency: u64) -> u32 {
    (u64::BITS - latency.leading_zeros()).saturating_sub(DIGITS).max(FINEST)
}

/// Returns the middle of the step.
fn middle(latency: u64) -> u64 {
    let latency = latency.min(LONGEST);
    let width = width(latency);
    (latency >> width << width) + (1 << (width - 1))
}

impl Tally {
    /// Creates an empty tally of a run of this many queries with this deadline.
    pub fn new(expected: u64, deadline: Duration) -> Self {
        Self {
            blocks: Default::default(),
            expected,
            deadline: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
            sums: [0; BLOCKS],
            outcomes: Default::default(),
            wrong: Default::default(),
            graded: false,
            deployed: 0,
            extra: 0,
            busy: 0,
            capacity: 0,
        }
    }

    /// Counts a query by its number without the warm-up, with its latency in nanoseconds. One without a prediction is as late
    /// as its deadline: early rejection must not make a tail look short. The answer is wrong if it is not the deployed model's.
    pub fn ended(&mut self, number: u64, latency: u64, outcome: Outcome, wrong: bool) {
        let counted = if outcome == Outcome::Failed { latency.max(self.deadline) } else { latency };
        let block = (number as f64 / self.expected as f64 * BLOCKS as f64) as usize;
        let block = block.min(BLOCKS - 1);
        *self.blocks[block].entry(middle(counted)).or_default() += 1;
        self.sums[block] += counted;
        self.outcomes[outcome as usize] += 1;
        self.wrong[outcome as usize] += u64::from(wrong);
    }

    /// Counts a started job, for queries without a job or as redundancy. Its work is in jobs of the deployed model.
    pub fn started(&mut self, deployed: bool, work: f64) {
        let sum = if deployed { &mut self.deployed } else { &mut self.extra };
        *sum += (work * WHOLE).round() as u64;
    }

    /// Ends the run.
    pub fn finish(&mut self, busy: u64, capacity: u64) {
        (self.busy, self.capacity) = (busy, capacity);
    }

    /// Returns the number of counted queries.
    pub fn count(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Returns the share of the queries with this outcome.
    pub fn share(&self, outcome: Outcome) -> f64 {
        self.outcomes[outcome as usize] as f64 / self.count().max(1) as f64
    }

    /// Returns the share of the queries with a wrong answer because of the fault schedule. A failed query has none.
    pub fn wrong(&self) -> f64 {
        let answers = Outcome::ALL.iter().filter(|outcome| outcome.is_answer());
        let wrong: u64 = answers.map(|outcome| self.wrong[*outcome as usize]).sum();
        wrong as f64 / self.count().max(1) as f64
    }

    /// Returns the queries with this outcome, and those of them with a right answer. `None` without an answer, and for
    /// approximate answers that were not compared with anything, as in a simulation.
    pub fn right(&self, outcome: Outcome) -> Option<(u64, u64)> {
        let [ended, wrong] = [&self.outcomes, &self.wrong].map(|of| of[outcome as usize]);
        (outcome.is_answer() && (self.graded || !outcome.is_approximate())).then(|| (ended, ended - wrong))
    }

    /// The same, for a run whose answers are all compared with the deployed model's.
    pub fn graded(mut self) -> Self {
        self.graded = true;
        self
    }

    /// Returns the redundant work as a share of the necessary work (in jobs of the deployed model without faults).
    pub fn extra(&self) -> f64 {
        self.extra as f64 / (self.deployed as f64).max(WHOLE)
    }

    /// Returns the share of the instances' time that they worked.
    pub fn utilisation(&self) -> f64 {
        self.busy as f64 / self.capacity.max(1) as f64
    }

    /// Returns the mean latency in seconds and its standard error, from the means of the blocks.
    pub fn mean(&self) -> (f64, f64) {
        let of = |(block, sum): (&BTreeMap<u64, u32>, &u64)| {
            let count: u64 = block.values().copied().map(u64::from).sum();
            (count > 0).then(|| *sum as f64 / count as f64 / 1e9)
        };
        let means: Vec<f64> = self.blocks.iter().zip(&self.sums).filter_map(of).collect();
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let variance = means.iter().map(|block| (block - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, (variance / count).sqrt())
    }

    /// Returns how often each latency in nanoseconds occurred in each block.
    pub fn blocks(&self) -> &[BTreeMap<u64, u32>] {
        &self.blocks
    }

    /// Returns quantiles of all latencies in milliseconds.
    pub fn quantiles_ms<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for (latency, count) in self.blocks.iter().flatten() {
            *all.entry(*latency).or_default() += u64::from(*count);
        }
        shares.map(|share| {
            let rank = ((share * self.count() as f64).ceil() as u64).max(1);
            let mut below = 0;
            let reached = all.iter().find(|(_, count)| {
                below += **count;
                below >= rank
            });
            // The end of the step: no latency is called shorter than it was.
            reached.map_or(0.0, |(latency, _)| (latency + (1 << (width(*latency) - 1)) - 1) as f64 / 1e6)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(count: u64) -> Tally {
        let mut tally = Tally::new(count, Duration::from_secs(1));
        for number in 0..count {
            let outcome = if number % 10 == 0 { Outcome::Failed } else { Outcome::Exact };
            let wrong = number == 0 || (100..134).contains(&number);
            tally.ended(number, 20_000_000 + number, outcome, wrong);
        }
        tally
    }

    #[test]
    fn failed_queries_are_as_late_as_their_deadline_and_not_wrong() {
        let tally = tally(3200);
        assert!(tally.blocks().iter().all(|block| block.values().sum::<u32>() == 100 && block.len() < 5));
        let (late, count) = tally.blocks()[0].last_key_value().unwrap();
        assert!((*late as f64 / 1e9 - 1.0).abs() < 1e-3 && *count == 10);
        assert!((tally.share(Outcome::Failed) - 0.1).abs() < 1e-12);
        assert!((tally.wrong() - 30.0 / 3200.0).abs() < 1e-12, "{}", tally.wrong());
    }

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut tally = Tally::new(5000, Duration::ZERO);
        for number in 0..5000 {
            tally.ended(number, (number + 1) * (number + 1) * 10_000, Outcome::Exact, false);
        }
        for (share, found) in [0.1, 0.5, 0.999, 1.0].map(|share| (share, tally.quantiles_ms([share])[0])) {
            let wanted = (share * 5000.0f64).powi(2) / 100.0;
            assert!((0.0..0.001).contains(&(found / wanted - 1.0)), "{share}: {found}, {wanted} ms");
        }
    }
}
