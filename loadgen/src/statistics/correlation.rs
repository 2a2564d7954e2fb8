//! Integrated correlation time: the consecutive samples that are worth one independent sample.
//!
//! The variance of a mean of correlated samples is that of independent ones times the integrated correlation time.
//! Summing the autocorrelations costs one pass per lag, and under interference thousands of lags matter. This doubles
//! blocks instead (Flyvbjerg and Petersen): it computes the variance of the means of blocks of 1, 2, 4, ... samples, each
//! from the previous ones. That takes two passes in total, and the variance stops growing once blocks are much longer
//! than the correlation.

/// Blocks must be this many correlation times long to give a reliable estimate of it.
const WINDOW: f64 = 10.0;
/// With fewer blocks their variance is largely noise.
const FEWEST_BLOCKS: usize = 32;

/// Integrated correlation time, in samples, of "this sample is above the bound": 1 for independent samples.
pub fn time_above(series: &[f64], bound: f64) -> f64 {
    let mut blocks: Vec<f64> = series.iter().map(|&x| f64::from(u8::from(x > bound))).collect();
    let single = variance(&blocks);
    if single == 0.0 {
        return 1.0;
    }
    let (mut length, mut time) = (1.0, 1.0f64);
    while length < WINDOW * time && blocks.len() >= 2 * FEWEST_BLOCKS {
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
