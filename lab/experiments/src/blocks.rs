//! Quantiles of runs and their uncertainty, from resampled blocks.
//!
//! A quantile of each block and their scatter would be simpler, but a block has few samples beyond p99.9, so its own
//! p99.9 is biased. Pooling the drawn blocks first gives every resampled quantile as many samples as the run has. The
//! bootstrap of `parm_loadgen` needs the raw series and chooses its own blocks. Here the blocks are histograms, and they
//! must be the same for every policy, so that ratios are resampled in pairs.

use parm_simulator::Tally;
use parm_workload::Random;

/// The blocks of one or several runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// The distinct latencies in nanoseconds, in order.
    latencies: Vec<u64>,
    /// For each block, the latencies that occurred (by index) and how often.
    blocks: Vec<Vec<(u32, u32)>>,
}

/// The quantiles of one draw of blocks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// Number of draws. They are the same for every policy, so that policies are compared on the same blocks.
const ROUNDS: u64 = 400;

impl Blocks {
    /// Collects the blocks of repeated runs.
    pub(crate) fn of(runs: &[Tally]) -> Self {
        let blocks = || runs.iter().flat_map(Tally::blocks);
        let mut latencies: Vec<u64> = blocks().flat_map(|block| block.keys().copied()).collect();
        latencies.sort_unstable();
        latencies.dedup();
        let index = |latency| latencies.partition_point(|other| *other < latency) as u32;
        let blocks = blocks()
            .map(|block| block.iter().map(|(latency, count)| (index(*latency), *count)).collect())
            .collect();
        Self { latencies, blocks }
    }

    /// Returns the quantiles of all blocks.
    pub(crate) fn quantiles(&self) -> Quantiles {
        self.pooled(0..self.blocks.len())
    }

    /// Returns the quantiles of random draws of as many blocks.
    pub(crate) fn resampled(&self, seed: u64) -> Vec<Quantiles> {
        let count = self.blocks.len();
        (0..ROUNDS)
            .map(|round| {
                let mut draw = Random::of(seed, [round]);
                self.pooled((0..count).map(|_| draw.below(count)))
            })
            .collect()
    }

    /// Returns quantiles of all blocks in milliseconds, for shares in ascending order.
    pub(crate) fn quantiles_at(&self, shares: &[f64]) -> Vec<f64> {
        self.quantiles_of(0..self.blocks.len(), shares)
    }

    fn pooled(&self, drawn: impl Iterator<Item = usize>) -> Quantiles {
        let of = self.quantiles_of(drawn, &[0.5, 0.99, 0.999]);
        Quantiles { p50: of[0], p99: of[1], p999: of[2] }
    }

    fn quantiles_of(&self, drawn: impl Iterator<Item = usize>, shares: &[f64]) -> Vec<f64> {
        let mut counts = vec![0u64; self.latencies.len()];
        for (index, count) in drawn.flat_map(|block| &self.blocks[block]) {
            counts[*index as usize] += u64::from(*count);
        }
        let total = counts.iter().sum::<u64>() as f64;
        let (mut below, mut next) = (0, 0);
        let value = |share: &f64| {
            while next < counts.len() && (below as f64) < (share * total).max(1.0) {
                below += counts[next];
                next += 1;
            }
            self.latencies.get(next.saturating_sub(1)).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
        };
        shares.iter().map(value).collect()
    }
}

impl Quantiles {
    /// Returns p99.9 less p50, the paper's measure of a tail.
    pub(crate) fn gap(self) -> f64 {
        self.p999 - self.p50
    }
}
