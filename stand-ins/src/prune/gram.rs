//! Least squares between channels: Gram matrices (products of all pairs of channels, summed over samples), their Cholesky
//! factors, and the estimate of removed channels from the remaining ones.

use std::iter::Sum;
use std::ops::{AddAssign, Mul};

/// Samples per addition: few enough for sums in 32 bits.
const TOGETHER: usize = 128;

/// Sums over samples of a value's channels, in two halves of the rows: one to fit, one to test the fit.
#[derive(Clone, Debug)]
pub(crate) struct Gram {
    halves: [Sums; 2],
    /// Whether a constant may be added in the channels' readers.
    is_centred: bool,
}

#[derive(Clone, Debug)]
struct Sums {
    count: f64,
    first: Vec<f64>,
    /// The lower triangle, row by row.
    second: Vec<f64>,
    /// Samples that wait to be added, by channel.
    waiting: Vec<Vec<f32>>,
}

/// The moments for least squares.
#[derive(Clone, Debug)]
struct Moments {
    mean: Vec<f64>,
    /// Mean products of two channels; of their distances from the mean if a constant may be added.
    products: Square,
}

impl Gram {
    pub(crate) fn new(width: usize, is_centred: bool) -> Self {
        let sums = Sums {
            count: 0.0,
            first: vec![0.0; width],
            second: vec![0.0; before(width)],
            waiting: vec![Vec::with_capacity(TOGETHER); width],
        };
        Self { halves: [sums.clone(), sums], is_centred }
    }

    /// Adds a sample: one number per channel. A sample that is not finite is left out.
    pub(crate) fn add(&mut self, half: usize, sample: impl Iterator<Item = f32> + Clone) {
        if sample.clone().all(f32::is_finite) {
            let sums = &mut self.halves[half % 2];
            sums.waiting.iter_mut().zip(sample).for_each(|(waiting, value)| waiting.push(value));
            if sums.waiting.first().is_some_and(|waiting| waiting.len() == TOGETHER) {
                sums.settle();
            }
        }
    }

    pub(crate) fn settle(&mut self) {
        self.halves.iter_mut().for_each(Sums::settle);
    }

    fn count(&self) -> f64 {
        self.halves.iter().map(|half| half.count).sum()
    }

    fn all(&self) -> Moments {
        let [a, b] = &self.halves;
        let first = a.first.iter().zip(&b.first).map(|(a, b)| a + b).collect();
        let second: Vec<f64> = a.second.iter().zip(&b.second).map(|(a, b)| a + b).collect();
        self.moments(self.count(), first, &second)
    }

    /// The mean products of two channels over all samples.
    pub(super) fn products(&self) -> Square {
        self.all().products
    }

    fn half(&self, half: usize) -> Moments {
        let sums = &self.halves[half % 2];
        self.moments(sums.count, sums.first.clone(), &sums.second)
    }

    fn moments(&self, count: f64, mut mean: Vec<f64>, second: &[f64]) -> Moments {
        let size = mean.len();
        let mut products = Square::zeros(size);
        mean.iter_mut().for_each(|sum| *sum /= count.max(1.0));
        for row in 0..size {
            for column in 0..=row {
                let mut product = second[before(row) + column] / count.max(1.0);
                if self.is_centred {
                    product -= mean[row] * mean[column];
                }
                products.values[row * size + column] = product;
                products.values[column * size + row] = product;
            }
        }
        if !self.is_centred {
            mean.fill(0.0);
        }
        Moments { mean, products }
    }
}

/// The numbers of a triangle before a row.
fn before(row: usize) -> usize {
    row * (row + 1) / 2
}

impl Sums {
    fn settle(&mut self) {
        let samples = self.waiting.first().map_or(0, Vec::len);
        for row in 0..self.first.len() {
            let own = &self.waiting[row];
            self.first[row] += own.iter().map(|&value| f64::from(value)).sum::<f64>();
            let sums = &mut self.second[before(row)..][..=row];
            for (sum, other) in sums.iter_mut().zip(&self.waiting) {
                *sum += f64::from(dot(own, other));
            }
        }
        self.count += samples as f64;
        self.waiting.iter_mut().for_each(Vec::clear);
    }
}

/// A dot product; eight partial sums, so that the compiler uses vector instructions.
pub(super) fn dot<T: Copy + Default + Mul<Output = T> + AddAssign + Sum>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::default(); 8];
    let (a_runs, b_runs) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: T = a_runs.remainder().iter().zip(b_runs.remainder()).map(|(a, b)| *a * *b).sum();
    for (a, b) in a_runs.zip(b_runs) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += *a * *b);
    }
    let mut sum: T = sums.into_iter().sum();
    sum += rest;
    sum
}

/// Products of all pairs of rows of a matrix.
pub(super) fn of_rows(values: &[f32], rows: usize) -> Square {
    let columns = values.len() / rows.max(1);
    let mut products = Square::zeros(rows);
    let row = |at: usize| &values[at * columns..(at + 1) * columns];
    for a in 0..rows {
        for b in 0..=a {
            // Long rows are split, so that sums in 32 bits are accurate enough.
            let runs = row(a).chunks(4096).zip(row(b).chunks(4096));
            let product: f64 = runs.map(|(a, b)| f64::from(dot(a, b))).sum();
            products.values[a * rows + b] = product;
            products.values[b * rows + a] = product;
        }
    }
    products
}

/// A square matrix of doubles, row after row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Square {
    pub(super) size: usize,
    pub(super) values: Vec<f64>,
}

impl Square {
    fn zeros(size: usize) -> Self {
        Self { size, values: vec![0.0; size * size] }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.size + column]
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.size..(row + 1) * self.size]
    }

    pub(super) fn level(&self) -> f64 {
        (0..self.size).map(|at| self.at(at, at)).sum::<f64>() / self.size.max(1) as f64
    }

    /// These rows and columns, with `ridge` added to the diagonal.
    pub(super) fn part(&self, places: &[usize], ridge: f64) -> Self {
        let mut part = Self::zeros(places.len());
        for (row, &from) in places.iter().enumerate() {
            let values = self.row(from);
            for (column, &of) in places.iter().enumerate() {
                part.values[row * places.len() + column] = values[of];
            }
            part.values[row * places.len() + row] += ridge;
        }
        part
    }

    /// The Cholesky factor; `None` if the matrix is not positive definite.
    pub(super) fn factored(mut self) -> Option<Factor> {
        let size = self.size;
        for row in 0..size {
            let (above, below) = self.values.split_at_mut(row * size);
            let own = &mut below[..size];
            for column in 0..row {
                let other = &above[column * size..column * size + column + 1];
                let sum = dot(&own[..column], &other[..column]);
                own[column] = (own[column] - sum) / other[column];
            }
            let rest = own[row] - dot(&own[..row], &own[..row]);
            if !(rest.is_finite() && rest > 0.0) {
                return None;
            }
            own[row] = rest.sqrt();
        }
        Some(Factor(self))
    }
}

pub(super) struct Factor(Square);

impl Factor {
    /// Solves for one right side, in place.
    pub(super) fn solve(&self, right: &mut [f64]) {
        let size = self.0.size;
        for row in 0..size {
            let own = self.0.row(row);
            let sum = dot(&own[..row], &right[..row]);
            right[row] = (right[row] - sum) / own[row];
        }
        for row in (0..size).rev() {
            let own = self.0.row(row);
            right[row] /= own[row];
            let value = right[row];
            right[..row].iter_mut().zip(own).for_each(|(right, own)| *right -= own * value);
        }
    }

    pub(super) fn inverse(&self) -> Square {
        let size = self.0.size;
        let mut inverse = Square::zeros(size);
        for (at, column) in inverse.values.chunks_mut(size).enumerate() {
            column[at] = 1.0;
            self.solve(column);
        }
        inverse
    }
}

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
    fn moments_match_the_samples() {
        let samples: Vec<f32> = parm_random::Random::new(1).normals(300 * 3);
        let mut gram = Gram::new(3, true);
        samples.chunks(3).enumerate().for_each(|(at, sample)| gram.add(at, sample.iter().copied()));
        gram.add(0, [f32::NAN, 0.0, 0.0].into_iter());
        gram.settle();
        let Moments { mean, products } = gram.all();
        let average = |f: &dyn Fn(&[f32]) -> f32| {
            samples.chunks(3).map(|sample| f64::from(f(sample))).sum::<f64>() / 300.0
        };
        assert_eq!(gram.count(), 300.0);
        assert!((mean[1] - average(&|sample| sample[1])).abs() < 1e-6);
        let expected = average(&|sample| sample[0] * sample[2]) - mean[0] * mean[2];
        assert!((products.at(0, 2) - expected).abs() < 1e-6 && products.at(2, 0) == products.at(0, 2));
    }

    #[test]
    fn factored_returns_none_when_not_positive_definite() {
        assert!(Square { size: 2, values: vec![1.0, 2.0, 2.0, 1.0] }.factored().is_none());
        assert!(Square::zeros(1).factored().is_none());
    }

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
