//! Which of the outputs of a `berrut` group are wrong (not late: wrong).
//!
//! If e of n outputs lie, there are polynomials P (degree k + e - 1) and Q (degree e, constant term 1) with
//! P(beta_i) = Q(beta_i) y_i for the honest ones, and Q is zero where an output lies. Both are fitted by least squares,
//! coordinate by coordinate of the outputs; the e points with the smallest |Q| get a vote each. The outputs of a real
//! model follow such a curve only approximately, so this finds gross errors, not small ones. It needs n >= k + 2 e
//! outputs, allocates, and is meant for audits, not for the path of a query.

use crate::berrut::Berrut;
use crate::matrix::Matrix;
use crate::{Code, Error, Part, Set};

impl Berrut {
    /// The `errors` most suspicious of the outputs that are in.
    pub fn locate(&self, outputs: &[Option<&[f32]>], errors: usize) -> Result<Set, Error> {
        let k = self.spec().k;
        let coded = self.points().len();
        if outputs.len() != coded {
            return Err(Error::Count { what: Part::ParityOutput, expected: coded, actual: outputs.len() });
        }
        let returned: Vec<(usize, &[f32])> = outputs
            .iter()
            .enumerate()
            .filter_map(|(index, output)| output.map(|output| (index, output)))
            .collect();
        let needed = k + 2 * errors;
        if returned.len() < needed {
            return Err(Error::TooFewToLocate { errors, needed, outputs: returned.len() });
        }
        let len = returned[0].1.len();
        if let Some((index, output)) = returned.iter().find(|(_, output)| output.len() != len) {
            let (expected, actual) = (len, output.len());
            return Err(Error::Length { what: Part::ParityOutput, index: *index, expected, actual });
        }
        let points: Vec<f64> = returned.iter().map(|(index, _)| self.points()[*index]).collect();
        let mut votes = vec![0_usize; returned.len()];
        for coordinate in 0..len {
            let values: Vec<f64> = returned.iter().map(|(_, output)| f64::from(output[coordinate])).collect();
            for suspect in suspects(&points, &values, k, errors) {
                votes[suspect] += 1;
            }
        }
        let mut ranking: Vec<usize> = (0..returned.len()).collect();
        ranking.sort_by_key(|index| std::cmp::Reverse(votes[*index]));
        Ok(ranking.into_iter().take(errors).map(|index| returned[index].0).collect())
    }
}

/// The positions with the smallest |Q| for one coordinate; none where all values are alike.
fn suspects(points: &[f64], values: &[f64], k: usize, errors: usize) -> Vec<usize> {
    let scale = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    if !scale.is_finite() || scale == 0.0 {
        return (0..values.len()).filter(|index| !values[*index].is_finite()).take(errors).collect();
    }
    let numerator = k + errors;
    let unknowns = numerator + errors;
    let system = Matrix::from_fn(points.len(), unknowns, |row, column| {
        if column < numerator {
            chebyshev(column, points[row])
        } else {
            -chebyshev(column - numerator + 1, points[row]) * values[row] / scale
        }
    });
    let right = Matrix::from_fn(points.len(), 1, |row, _| values[row] / scale);
    let transposed = system.transposed();
    let normal = transposed.times(&system);
    // A touch of ridge: honest data leaves Q undetermined.
    let normal = Matrix::from_fn(unknowns, unknowns, |row, column| {
        normal.at(row, column) + if row == column { 1e-10 } else { 0.0 }
    });
    let Some(fit) = normal.solve(&transposed.times(&right)) else { return Vec::new() };
    let q = |point: f64| {
        (1..=errors)
            .fold(1.0, |sum, degree| sum + fit.at(numerator + degree - 1, 0) * chebyshev(degree, point))
            .abs()
    };
    let mut ranking: Vec<usize> = (0..points.len()).collect();
    ranking.sort_by(|a, b| q(points[*a]).total_cmp(&q(points[*b])));
    ranking.truncate(errors);
    ranking
}

/// T_n(x) on -1..=1.
fn chebyshev(degree: usize, x: f64) -> f64 {
    (degree as f64 * x.clamp(-1.0, 1.0).acos()).cos()
}
