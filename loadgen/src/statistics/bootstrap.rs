//! Confidence intervals of quantiles of correlated latencies: the moving-block bootstrap.
//!
//! Neighbouring latencies share queues and interference, so resampling them one by one gives intervals that are far too
//! narrow (the variance of p99.9's exceedance is up to 150 times the binomial one). This resamples whole blocks of
//! consecutive samples, long enough to be nearly independent. It requires blocks of at least twenty correlation times and
//! at least twenty blocks with enough of the tail; otherwise there is not enough data.
//!
//! No resample is written out. A resample's quantile is at most x if enough samples of its blocks are at most x, which
//! takes two look-ups per block. Bisection over x, with the same blocks drawn for every x, finds the bounds: exactly the
//! percentile interval, a hundred times faster.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Estimate;

/// The fewest blocks that allow an interval.
const FEWEST_BLOCKS: usize = 20;
/// More are not needed: longer blocks are less correlated.
const MOST_BLOCKS: usize = 500;
/// The least length of a block, in correlation times.
const TIMES: f64 = 20.0;
/// Effectively independent samples beyond the quantile, below which the interval would be a guess.
const FEWEST_BEYOND: f64 = 20.0;

/// Probability that an interval holds the truth.
const CONFIDENCE: f64 = 0.95;

/// Returns the interval of a quantile, or `None` if there is not enough data.
pub fn interval(series: &[f64], share: f64, seed: u64) -> Option<Estimate> {
    Bootstrap::for_quantile(series, share, seed).quantile(series, share)
}

/// How to resample.
struct Bootstrap {
    /// Samples in a block.
    block: usize,
    /// Consecutive samples that carry as much information as one independent sample.
    correlation: f64,
    /// Resamplings.
    rounds: usize,
    seed: u64,
}

impl Bootstrap {
    /// Chooses blocks of twenty correlation times of the indicator "above the quantile", on which the estimate depends.
    fn for_quantile(series: &[f64], share: f64, seed: u64) -> Self {
        let bound = quantile_of(&mut series.to_vec(), share);
        let correlation = time_above(series, bound);
        let block = (TIMES * correlation).ceil().max(1.0) as usize;
        let block = block.max(series.len().div_ceil(MOST_BLOCKS));
        Self { block, correlation, rounds: 400, seed }
    }

    fn quantile(&self, series: &[f64], share: f64) -> Option<Estimate> {
        let beyond = (1.0 - share).min(share) * series.len() as f64 / self.correlation;
        if series.len() < FEWEST_BLOCKS * self.block || beyond < FEWEST_BEYOND {
            return None;
        }
        let mut sorted = series.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let draws = self.draws(series.len());
        let rank = (share * (draws.blocks * self.block) as f64).ceil() as u64;
        let outside = (1.0 - CONFIDENCE) / 2.0;
        // The smallest x that is at least as large as this share of the resampled quantiles.
        let bound = |chance: f64| {
            let wanted = (chance * self.rounds as f64).ceil() as usize;
            let (mut low, mut high) = (0, sorted.len() - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                let enough = draws.with_at_most(sorted[middle], series, rank) >= wanted;
                if enough { high = middle } else { low = middle + 1 }
            }
            sorted[low]
        };
        let at = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1;
        Some(Estimate { value: sorted[at], low: bound(outside), high: bound(1.0 - outside) })
    }

    fn draws(&self, samples: usize) -> Draws {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let blocks = samples.div_ceil(self.block);
        let last = samples - self.block;
        let starts = (0..self.rounds * blocks).map(|_| random.random_range(0..=last) as u32).collect();
        Draws { starts, blocks, block: self.block }
    }
}

/// The first samples of the drawn blocks, resample after resample.
struct Draws {
    starts: Vec<u32>,
    blocks: usize,
    block: usize,
}

impl Draws {
    /// Counts the resamples that have at least `rank` samples of at most `x`.
    fn with_at_most(&self, x: f64, series: &[f64], rank: u64) -> usize {
        let mut before = Vec::with_capacity(series.len() + 1);
        let mut count = 0u32;
        before.push(count);
        before.extend(series.iter().map(|&sample| {
            count += u32::from(sample <= x);
            count
        }));
        let within = |&start: &u32| {
            let start = start as usize;
            u64::from(before[start + self.block] - before[start])
        };
        let resamples = self.starts.chunks_exact(self.blocks);
        resamples.filter(|starts| starts.iter().map(within).sum::<u64>() >= rank).count()
    }
}

/// Returns the value that `share` of the values do not exceed. Reorders them.
pub fn quantile_of(values: &mut [f64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// Blocks must be this many correlation times long to give a reliable estimate of it.
const WINDOW: f64 = 10.0;
/// With fewer blocks their variance is largely noise.
const FEWEST_FOR_VARIANCE: usize = 32;

/// Integrated correlation time, in samples, of "this sample is above the bound": the consecutive samples that are worth one
/// independent sample.
///
/// The variance of a mean of correlated samples is that of independent ones times this time. Summing the autocorrelations
/// costs one pass per lag, and under interference thousands of lags matter. This doubles blocks instead (Flyvbjerg and
/// Petersen): it computes the variance of the means of blocks of 1, 2, 4, ... samples, each from the previous ones. That takes
/// two passes in total, and the variance stops growing once blocks are much longer than the correlation.
pub fn time_above(series: &[f64], bound: f64) -> f64 {
    let mut blocks: Vec<f64> = series.iter().map(|&x| f64::from(u8::from(x > bound))).collect();
    let single = variance(&blocks);
    if single == 0.0 {
        return 1.0;
    }
    let (mut length, mut time) = (1.0, 1.0f64);
    while length < WINDOW * time && blocks.len() >= 2 * FEWEST_FOR_VARIANCE {
        blocks = blocks.as_chunks::<2>().0.iter().map(|[a, b]| 0.5 * (a + b)).collect();
        length *= 2.0;
        time = (length * variance(&blocks) / single).max(1.0);
    }
    time
}

fn variance(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::*;

    /// Correlated latencies.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Series {
        /// Independent samples, exponential of mean 1.
        Independent,
        /// Fast (1 to 2) with slow episodes (10 to 11) of this mean length in samples, which are this share of all.
        Episodes(f64, f64),
        /// Times in a queue with one server at this load: long memory at high loads (M/M/1, service of mean 1).
        Queue(f64),
    }

    impl Series {
        /// The first samples, in equilibrium.
        fn draw(self, count: usize, seed: u64) -> Vec<f64> {
            let mut draw = Random::of(seed, [0x5E81E5]);
            match self {
                Series::Independent => (0..count).map(|_| draw.exponential()).collect(),
                Series::Episodes(length, share) => {
                    let leave = 1.0 / length;
                    let enter = leave * share / (1.0 - share);
                    let mut slow = draw.uniform() < share;
                    let next = |_| {
                        slow = if slow { draw.uniform() >= leave } else { draw.uniform() < enter };
                        (if slow { 10.0 } else { 1.0 }) + draw.uniform()
                    };
                    (0..count).map(next).collect()
                }
                Series::Queue(load) => {
                    // Lindley's recursion, begun with the exact law of the waiting time.
                    let mut wait =
                        if draw.uniform() < load { draw.exponential() / (1.0 - load) } else { 0.0 };
                    let next = |_| {
                        let sojourn = wait + draw.exponential();
                        wait = (sojourn - draw.exponential() / load).max(0.0);
                        sojourn
                    };
                    (0..count).map(next).collect()
                }
            }
        }

        /// Returns the value that `share` of all samples do not exceed.
        fn quantile(self, share: f64) -> f64 {
            match self {
                Series::Independent => -(1.0 - share).ln(),
                Series::Episodes(_, slow) => {
                    if share < 1.0 - slow {
                        1.0 + share / (1.0 - slow)
                    } else {
                        11.0 - (1.0 - share) / slow
                    }
                }
                Series::Queue(load) => -(1.0 - share).ln() / (1.0 - load),
            }
        }
    }

    /// Returns the share of the intervals that hold the true p99.9, and of series that had enough data for one.
    fn coverage(series: Series, samples: usize, runs: u64) -> (f64, f64) {
        let (mut covered, mut given) = (0, 0);
        for seed in 0..runs {
            let latencies = series.draw(samples, seed);
            let bootstrap = Bootstrap { rounds: 200, ..Bootstrap::for_quantile(&latencies, 0.999, seed) };
            if let Some(interval) = bootstrap.quantile(&latencies, 0.999) {
                let truth = series.quantile(0.999);
                covered += u32::from(interval.low <= truth && truth <= interval.high);
                given += 1;
            }
        }
        (f64::from(covered) / f64::from(given.max(1)), f64::from(given) / runs as f64)
    }

    #[test]
    fn intervals_of_p999_cover_the_truth_as_often_as_claimed() {
        for (series, samples) in [
            (Series::Independent, 60_000),
            (Series::Episodes(4.0, 0.02), 60_000),
            (Series::Episodes(20.0, 0.02), 60_000),
            (Series::Queue(0.3), 120_000),
        ] {
            let (covered, given) = coverage(series, samples, 80);
            assert!(given > 0.9, "{series:?}: {given} had enough data");
            assert!(
                (0.90..=0.99).contains(&covered),
                "{series:?}: {covered} of the intervals hold the truth"
            );
        }
    }

    #[test]
    fn interval_equals_that_of_explicit_resamples() {
        let series = Series::Episodes(4.0, 0.05).draw(20_000, 3);
        let bootstrap = Bootstrap { rounds: 101, ..Bootstrap::for_quantile(&series, 0.9, 9) };
        let interval = bootstrap.quantile(&series, 0.9).unwrap();
        let draws = bootstrap.draws(series.len());
        let written = |starts: &[u32]| {
            let blocks =
                starts.iter().map(|&start| &series[start as usize..start as usize + bootstrap.block]);
            quantile_of(&mut blocks.flatten().copied().collect::<Vec<_>>(), 0.9)
        };
        let mut estimates: Vec<f64> = draws.starts.chunks_exact(draws.blocks).map(written).collect();
        assert_eq!(interval.low, quantile_of(&mut estimates, 0.025));
        assert_eq!(interval.high, quantile_of(&mut estimates, 0.975));
        assert_eq!(interval.value, quantile_of(&mut series.clone(), 0.9));
    }

    #[test]
    fn blocks_are_longer_for_longer_episodes() {
        let block =
            |length| Bootstrap::for_quantile(&Series::Episodes(length, 0.05).draw(50_000, 3), 0.99, 0).block;
        assert!(block(4.0) < block(40.0) && block(40.0) < block(400.0));
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        let given = |series: Series, count| {
            let series = series.draw(count, 1);
            Bootstrap::for_quantile(&series, 0.999, 1).quantile(&series, 0.999).is_some()
        };
        assert!(!given(Series::Independent, 2_000), "two samples lie beyond p99.9");
        assert!(given(Series::Independent, 40_000));
        assert!(!given(Series::Episodes(400.0, 0.02), 40_000), "forty do, in one or two episodes");
    }

    #[test]
    fn correlation_time_of_a_markov_chain_matches_theory() {
        // Leaving slow with probability a and entering with b, the autocorrelation at lag n is (1 - a - b)^n.
        for (a, b) in [(0.9, 0.1), (0.05, 0.005), (0.01, 0.01)] {
            let mut draw = Random::of(2, [1]);
            let mut slow = false;
            let next = |_| {
                slow = if slow { draw.uniform() >= a } else { draw.uniform() < b };
                f64::from(u8::from(slow))
            };
            let series: Vec<f64> = (0..400_000).map(next).collect();
            let theory = 2.0 / (a + b) - 1.0;
            let time = time_above(&series, 0.5);
            assert!((time / theory - 1.0).abs() < 0.25, "{time}, in theory {theory}");
        }
    }

    #[test]
    fn correlation_time_is_one_for_a_constant_or_empty_series() {
        assert_eq!(time_above(&[3.0; 100], 1.0), 1.0);
        assert_eq!(time_above(&[], 1.0), 1.0);
    }
}
