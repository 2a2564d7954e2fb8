//! Estimates removed channels from the remaining ones.

use super::gram::{Gram, Moments};
use super::matrix::Square;

/// Ridges to try, as shares of a channel's power, and the default without rows to try them on.
const RIDGES: [f64; 5] = [1e-5, 1e-3, 1e-2, 1e-1, 1.0];
const UNTRIED: f64 = 1e-1;
/// The number of channels that ridges are tried on.
const TRIED: usize = 32;

/// A linear estimate of the removed channels.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    /// For each removed channel, the weights of the remaining ones.
    pub(crate) shares: Vec<Vec<f64>>,
    /// For each removed channel, a constant.
    pub(crate) constants: Vec<f64>,
}

/// Makes the estimate with the ridge that is best on held-out rows.
pub(crate) fn estimate(gram: &Gram, kept: &[usize], gone: &[usize]) -> Estimate {
    let [fit, held_out] = [0, 1].map(|half| gram.half(half));
    let step = gone.len().div_ceil(TRIED).max(1);
    let tried: Vec<usize> = gone.iter().step_by(step).copied().collect();
    let error = |ridge: f64| {
        let shares = solved(&fit.products, kept, &tried, ridge)?;
        let errors =
            tried.iter().zip(&shares).map(|(&channel, shares)| missed(&held_out, kept, channel, shares));
        Some(errors.sum::<f64>()).filter(|error| error.is_finite())
    };
    let has_both = fit.products.level() > 0.0 && held_out.products.level() > 0.0;
    let errors = RIDGES.into_iter().filter_map(|ridge| Some((ridge, error(ridge)?)));
    let best = errors.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| has_both);
    let ridge = best.map_or(UNTRIED, |(ridge, _)| ridge);
    let Moments { mean, products } = gram.all();
    let shares =
        solved(&products, kept, gone, ridge).unwrap_or_else(|| vec![vec![0.0; kept.len()]; gone.len()]);
    let constant = |(&channel, shares): (&usize, &Vec<f64>)| {
        mean[channel] - kept.iter().zip(shares).map(|(&kept, share)| share * mean[kept]).sum::<f64>()
    };
    let constants = gone.iter().zip(&shares).map(constant).collect();
    Estimate { shares, constants }
}

/// Ridge regression of each of these channels on the remaining ones; `None` without samples of them.
fn solved(products: &Square, kept: &[usize], gone: &[usize], ridge: f64) -> Option<Vec<Vec<f64>>> {
    let factor = products.part(kept, ridge * products.level()).factored()?;
    let solve = |&channel: &usize| {
        let row = products.row(channel);
        let mut right: Vec<f64> = kept.iter().map(|&kept| row[kept]).collect();
        factor.solve(&mut right);
        right
    };
    Some(gone.iter().map(solve).collect())
}

/// The squared error of an estimate.
fn missed(seen: &Moments, kept: &[usize], channel: usize, shares: &[f64]) -> f64 {
    let row = seen.products.row(channel);
    let mut error = row[channel];
    for (&a, share) in kept.iter().zip(shares) {
        let products = seen.products.row(a);
        let others: f64 = kept.iter().zip(shares).map(|(&b, other)| other * products[b]).sum();
        error += share * (others - 2.0 * row[a]);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_finds_a_linear_combination_and_its_constant() {
        let values = parm_random::Random::new(4).normals(400 * 2);
        let mut gram = Gram::new(3, true);
        for (at, pair) in values.chunks(2).enumerate() {
            gram.add(at, [pair[0], 2.0 * pair[0] - pair[1] + 5.0, pair[1]].into_iter());
        }
        gram.settle();
        let Estimate { shares, constants } = estimate(&gram, &[0, 2], &[1]);
        assert!((shares[0][0] - 2.0).abs() < 1e-3 && (shares[0][1] + 1.0).abs() < 1e-3, "{shares:?}");
        assert!((constants[0] - 5.0).abs() < 1e-3, "{constants:?}");
    }

    #[test]
    fn with_few_rows_the_ridge_keeps_the_estimate_small() {
        // Noise: the other channels predict nothing, and a fit without ridge to fewer samples than channels would
        // overfit.
        let mut gram = Gram::new(40, true);
        let noise = parm_random::Random::new(5).normals(48 * 40);
        noise.chunks(40).enumerate().for_each(|(at, sample)| gram.add(at, sample.iter().copied()));
        gram.settle();
        let (kept, gone): (Vec<usize>, Vec<usize>) = ((0..30).collect(), (30..40).collect());
        let Estimate { shares, .. } = estimate(&gram, &kept, &gone);
        let size: f64 = shares.iter().flatten().map(|share| share * share).sum::<f64>() / 10.0;
        assert!(size < 0.7, "{size}");
    }

    #[test]
    fn estimate_ignores_channels_without_samples() {
        let Estimate { shares, constants } = estimate(&Gram::new(4, true), &[0, 1], &[2, 3]);
        assert_eq!((shares, constants), (vec![vec![0.0; 2]; 2], vec![0.0; 2]));
    }
}
