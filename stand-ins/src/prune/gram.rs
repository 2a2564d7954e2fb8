//! Gram matrices: products of all pairs of channels, summed over samples.

use super::matrix::Square;

/// Samples per addition: few enough for sums in 32 bits.
const TOGETHER: usize = 128;

/// Sums over samples of a value's channels, in two halves of the rows: one to fit, one to test the fit.
#[derive(Clone, Debug)]
pub(crate) struct Gram {
    halves: [Sums; 2],
    /// Whether a constant may be added in the channels' readers.
    pub(super) is_centred: bool,
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
pub(super) struct Moments {
    pub(super) mean: Vec<f64>,
    /// Mean products of two channels; of their distances from the mean if a constant may be added.
    pub(super) products: Square,
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

    /// Adds the waiting samples.
    pub(crate) fn settle(&mut self) {
        self.halves.iter_mut().for_each(Sums::settle);
    }

    /// The number of samples.
    pub(super) fn count(&self) -> f64 {
        self.halves.iter().map(|half| half.count).sum()
    }

    /// The moments of all samples.
    pub(super) fn all(&self) -> Moments {
        let [a, b] = &self.halves;
        let first = a.first.iter().zip(&b.first).map(|(a, b)| a + b).collect();
        let second: Vec<f64> = a.second.iter().zip(&b.second).map(|(a, b)| a + b).collect();
        self.moments(self.count(), first, &second)
    }

    /// The moments of one half.
    pub(super) fn half(&self, half: usize) -> Moments {
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

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a_runs, b_runs) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a_runs.remainder().iter().zip(b_runs.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_runs.zip(b_runs) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest
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
    fn products_of_rows_are_sums_of_products() {
        let products = of_rows(&[1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(products.values, [5.0, 11.0, 11.0, 25.0]);
    }
}
