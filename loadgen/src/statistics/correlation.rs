//! How many consecutive samples say what one independent sample would.
//!
//! The variance of a mean of correlated samples is that of independent ones times the integrated correlation time. Summing
//! the autocorrelations lag by lag costs a pass for every lag, and thousands of them under interference. Here blocks are
//! doubled instead (Flyvbjerg and Petersen): the variance of means of blocks of 1, 2, 4, ... samples, each from the one
//! before, is two passes altogether, and stops growing once blocks are much longer than the correlation.

/// Blocks must be this many correlation times long for what they say of it to be believed.
const WINDOW: f64 = 10.0;
/// With fewer blocks their variance is mostly luck.
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
    fn independent_samples_have_a_time_of_one_and_repeated_ones_of_their_repetition() {
        let mut draw = Random::of(1, [1]);
        let independent: Vec<f64> = (0..100_000).map(|_| draw.uniform()).collect();
        for repeats in [1usize, 10, 100] {
            let series: Vec<f64> = (0..100_000).map(|i| independent[i / repeats]).collect();
            let time = time_above(&series, 0.9) / repeats as f64;
            assert!((0.8..1.25).contains(&time), "{repeats}: {time}");
        }
    }

    #[test]
    fn a_markov_chain_has_the_time_that_theory_gives() {
        // Leaving slow with probability a and entering with b, the autocorrelation at lag n is (1 - a - b)^n.
        let (a, b) = (0.05, 0.005);
        let mut draw = Random::of(2, [1]);
        let mut slow = false;
        let series: Vec<f64> = (0..400_000)
            .map(|_| {
                slow = if slow { draw.uniform() >= a } else { draw.uniform() < b };
                f64::from(u8::from(slow))
            })
            .collect();
        let theory = 2.0 / (a + b) - 1.0;
        let time = time_above(&series, 0.5);
        assert!((time / theory - 1.0).abs() < 0.25, "{time}, in theory {theory}");
    }

    #[test]
    fn a_constant_or_empty_series_has_a_time_of_one() {
        assert_eq!(time_above(&[3.0; 100], 1.0), 1.0);
        assert_eq!(time_above(&[], 1.0), 1.0);
    }
}
