//! Confidence intervals of quantiles of correlated latencies: the moving-block bootstrap.
//!
//! Latencies that follow each other share queues and interference, so resampling them one by one gives intervals that are
//! far too narrow (the variance of p99.9's exceedance is up to 150 times the binomial one). Whole blocks of consecutive samples
//! are resampled instead, long enough that what one block says of the next is little: at least twenty correlation times, and
//! at least twenty blocks, or the answer is that there is not enough data.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The fewest blocks that say anything.
const FEWEST_BLOCKS: usize = 20;

/// An interval around an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The value of the whole series.
    pub estimate: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// How to resample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Samples in a block.
    pub block: usize,
    /// Resamplings.
    pub rounds: usize,
    /// Probability that the interval holds the truth, such as 0.95.
    pub confidence: f64,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Bootstrap {
    /// Blocks of twenty correlation times of this series' indicator "above the quantile", which is what moves the estimate.
    pub fn for_quantile(series: &[f64], share: f64, seed: u64) -> Self {
        let bound = quantile_of(&mut series.to_vec(), share);
        let time = correlation_time(series, bound);
        Self { block: (20.0 * time).ceil().max(1.0) as usize, rounds: 400, confidence: 0.95, seed }
    }

    /// The interval of a quantile, or `None`: not enough data.
    pub fn quantile(&self, series: &[f64], share: f64) -> Option<Interval> {
        let enough =
            series.len() >= FEWEST_BLOCKS * self.block && (1.0 - share) * series.len() as f64 >= 10.0;
        if !enough {
            return None;
        }
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let blocks = series.len().div_ceil(self.block);
        let mut resampled = Vec::with_capacity(blocks * self.block);
        let mut estimates: Vec<f64> = (0..self.rounds)
            .map(|_| {
                resampled.clear();
                for _ in 0..blocks {
                    let start = random.random_range(0..=series.len() - self.block);
                    resampled.extend_from_slice(&series[start..start + self.block]);
                }
                quantile_of(&mut resampled, share)
            })
            .collect();
        let outside = (1.0 - self.confidence) / 2.0;
        Some(Interval {
            estimate: quantile_of(&mut series.to_vec(), share),
            low: quantile_of(&mut estimates, outside),
            high: quantile_of(&mut estimates, 1.0 - outside),
        })
    }
}

/// The value that `share` of the values do not exceed. Reorders them.
pub fn quantile_of(values: &mut [f64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// Integrated correlation time, in samples, of "this sample is above the bound": 1 for independent samples.
fn correlation_time(series: &[f64], bound: f64) -> f64 {
    let over: Vec<f64> = series.iter().map(|&x| f64::from(u8::from(x > bound))).collect();
    let mean = over.iter().sum::<f64>() / over.len().max(1) as f64;
    let covariance = |lag: usize| {
        over.iter().zip(&over[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / over.len() as f64
    };
    let variance = covariance(0);
    if variance == 0.0 {
        return 1.0;
    }
    let mut time = 1.0;
    for lag in 1..series.len() / 4 {
        let correlation = covariance(lag) / variance;
        time += 2.0 * correlation.max(0.0);
        // Sokal's window: stop once the lag exceeds five times the time found, where only noise is left.
        if lag as f64 > 5.0 * time {
            break;
        }
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of 1 with slow episodes of 10 whose lengths are geometric: a series whose quantiles are known.
    fn episodes(count: usize, mean_length: f64, share_slow: f64, seed: u64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let leave = 1.0 / mean_length;
        let enter = leave * share_slow / (1.0 - share_slow);
        let mut slow = false;
        (0..count)
            .map(|_| {
                let u: f64 = random.random();
                slow = if slow { u >= leave } else { u < enter };
                let noise: f64 = random.random();
                if slow { 10.0 + noise } else { 1.0 + noise }
            })
            .collect()
    }

    #[test]
    fn intervals_of_correlated_series_cover_the_truth_about_as_often_as_they_say() {
        // Slow with probability 0.02, uniform noise: p99 is the median of the slow samples, 10.5.
        let (runs, mut covered) = (200, 0);
        for seed in 0..runs {
            let series = episodes(60_000, 8.0, 0.02, seed);
            let bootstrap = Bootstrap { rounds: 200, ..Bootstrap::for_quantile(&series, 0.99, seed) };
            let interval = bootstrap.quantile(&series, 0.99).unwrap();
            covered += u64::from(interval.low <= 10.5 && 10.5 <= interval.high);
        }
        let coverage = covered as f64 / runs as f64;
        assert!((0.90..=0.99).contains(&coverage), "coverage {coverage}");
    }

    #[test]
    fn longer_episodes_call_for_longer_blocks() {
        let block = |length| Bootstrap::for_quantile(&episodes(50_000, length, 0.05, 3), 0.99, 0).block;
        assert!(block(2.0) < block(20.0) && block(20.0) < block(100.0));
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        let series = episodes(2_000, 5.0, 0.02, 1);
        assert_eq!(Bootstrap::for_quantile(&series, 0.999, 1).quantile(&series, 0.999), None);
    }
}
