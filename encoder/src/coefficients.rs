//! The built-in coefficients of the linear codes, and measures of their quality.
//!
//! Any r losses can be solved for if every square sub-matrix is regular. They can be solved for accurately if each is
//! well conditioned, because the inverse multiplies the errors of a parity model. Positive Cauchy or Vandermonde rows
//! are regular but nearly parallel, so they multiply errors. A random search found these: it minimised the largest
//! error gain over all loss patterns. The first row is ones, so that parity 0 is always ParM's sum. All rows have one
//! length, and their sums are far from zero, because `mds` scales rows to a sum of one.

use crate::Error;
use crate::linear::MAX_K;

/// The largest k with designed coefficients for more than one parity.
pub const DESIGNED_K: usize = 8;
/// The largest r with designed coefficients.
pub const DESIGNED_R: usize = 3;
/// The largest condition number of a sub-matrix: above it a parity model's error would drown the answer.
pub const CONDITION_LIMIT: f64 = 1000.0;

#[rustfmt::skip]
const TWO: [&[f64]; 7] = [
    &[1.216, -0.721],
    &[1.501, 0.611, -0.611],
    &[1.624, 0.947, 0.483, -0.483],
    &[1.612, 0.910, 0.417, -0.417, -1.108],
    &[1.740, 1.148, 0.715, 0.360, -0.360, -0.941],
    &[1.804, 1.297, 0.915, 0.602, 0.319, -0.319, -0.814],
    &[1.792, 1.285, 0.892, 0.570, 0.286, -0.286, -0.677, -1.180],
];

#[rustfmt::skip]
const THREE: [[&[f64]; 2]; 7] = [
    [&[-0.721, 1.216],
     &[1.216, -0.721]],
    [&[1.421, 0.574, -0.807],
     &[0.574, 1.421, -0.807]],
    [&[0.402, -0.639, 0.770, 1.685],
     &[0.669, 1.523, -0.401, 1.035]],
    [&[1.715, -1.066, -0.519, 0.731, 0.344],
     &[-0.380, 0.710, -0.895, 0.350, 1.852]],
    [&[0.726, 1.074, 0.236, 2.003, -0.229, 0.447],
     &[0.471, -1.258, 1.484, 0.233, 1.099, -0.856]],
    [&[0.738, -0.272, 1.220, -0.524, 0.986, 0.185, 1.900],
     &[-0.929, 1.384, -0.186, 0.361, 0.885, 1.693, -0.640]],
    [&[1.060, 0.245, 1.820, 0.709, -1.131, -0.368, 1.246, -0.194],
     &[1.488, 1.074, -0.354, -0.929, -0.153, 0.223, 0.500, 1.822]],
];

/// Returns well-conditioned coefficients, r rows of k; `None` for k over 8 or r over 3. One parity is ones for any k.
pub fn design(k: usize, r: usize) -> Option<Matrix> {
    if k == 0 || r == 0 || k > MAX_K || r > DESIGNED_R || (r > 1 && k > DESIGNED_K) {
        return None;
    }
    Some(Matrix::from_fn(r, k, |row, column| match (row, k, r) {
        (0, ..) | (_, 1, _) => 1.0,
        (_, _, 2) => TWO[k - 2][column],
        _ => THREE[k - 2][row - 1][column],
    }))
}

/// The worst condition numbers of the square sub-matrices of size 1, 2 and so on, once all rows have one length. The
/// first is infinite if a coefficient is zero, otherwise 1.
fn conditions(coefficients: &Matrix) -> Vec<f64> {
    let (r, k) = (coefficients.rows(), coefficients.columns());
    let length = |row: usize| coefficients.row(row).iter().map(|c| c * c).sum::<f64>().sqrt();
    let lengths: Vec<f64> = (0..r).map(length).collect();
    let worst = |size: usize| {
        let squares = choices(r, size)
            .into_iter()
            .flat_map(|rows| choices(k, size).into_iter().map(move |columns| (rows.clone(), columns)));
        let condition = |(rows, columns): (Vec<usize>, Vec<usize>)| {
            let scaled =
                |row: usize, column: usize| coefficients.at(rows[row], columns[column]) / lengths[rows[row]];
            Matrix::from_fn(size, size, scaled).condition_number()
        };
        squares.map(condition).fold(1.0, f64::max)
    };
    (1..=r.min(k)).map(worst).collect()
}

/// Rejects coefficients that cannot be solved for accurately.
pub(crate) fn check(coefficients: &Matrix) -> Result<(), Error> {
    for (index, condition) in conditions(coefficients).into_iter().enumerate() {
        if condition > CONDITION_LIMIT {
            return Err(Error::IllConditioned { size: index + 1, condition, limit: CONDITION_LIMIT });
        }
    }
    Ok(())
}

/// All ascending choices of `size` numbers below `n`.
fn choices(n: usize, size: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..size {
        all = all
            .into_iter()
            .flat_map(|choice: Vec<usize>| {
                let from = choice.last().map_or(0, |last| last + 1);
                (from..n).map(move |next| choice.iter().copied().chain([next]).collect())
            })
            .collect();
    }
    all
}

/// A small row-major matrix. The hot path of a query's tensor does not use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// A matrix whose elements are a function of row and column.
    pub fn from_fn(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| element(at / columns, at % columns)).collect();
        Self { rows, columns, values }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// One element.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// The rows as f32, for the kernels.
    pub fn to_f32(&self) -> Vec<f32> {
        self.values.iter().map(|value| *value as f32).collect()
    }

    /// Largest singular value divided by the smallest; infinite for a singular matrix. One-sided Jacobi rotates
    /// pairs of columns until all are orthogonal; their lengths are then the singular values.
    pub fn condition_number(&self) -> f64 {
        let mut columns: Vec<Vec<f64>> = (0..self.columns)
            .map(|column| (0..self.rows).map(|row| self.at(row, column)).collect())
            .collect();
        for _sweep in 0..60 {
            let mut rotated = false;
            for a in 0..columns.len() {
                for b in a + 1..columns.len() {
                    rotated |= orthogonalise(&mut columns, a, b);
                }
            }
            if !rotated {
                break;
            }
        }
        let lengths = columns.iter().map(|column| dot(column, column).sqrt());
        let (least, most) =
            lengths.fold((f64::INFINITY, 0.0_f64), |(least, most), l| (least.min(l), most.max(l)));
        if least <= most * 4.0 * f64::EPSILON { f64::INFINITY } else { most / least }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn orthogonalise(columns: &mut [Vec<f64>], a: usize, b: usize) -> bool {
    let (aa, bb, ab) =
        (dot(&columns[a], &columns[a]), dot(&columns[b], &columns[b]), dot(&columns[a], &columns[b]));
    if ab.abs() <= 1e-15 * (aa * bb).sqrt() {
        return false;
    }
    let zeta = (bb - aa) / (2.0 * ab);
    let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = cosine * tangent;
    for row in 0..columns[a].len() {
        let (x, y) = (columns[a][row], columns[b][row]);
        columns[a][row] = cosine * x - sine * y;
        columns[b][row] = sine * x + cosine * y;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designed_matrices_are_well_conditioned() {
        for r in 1..=DESIGNED_R {
            for k in 1..=DESIGNED_K {
                let matrix = design(k, r).expect("designed");
                let worst = conditions(&matrix);
                assert!(worst.iter().all(|condition| *condition < 60.0), "k {k} r {r}: {worst:?}");
                for row in 0..r {
                    let sum: f64 = matrix.row(row).iter().sum();
                    assert!(sum / k as f64 > 0.1, "k {k} r {r}: row {row} adds up to {sum}");
                }
            }
        }
        assert_eq!(design(9, 2), None);
        assert_eq!(design(4, 4), None);
    }

    #[test]
    fn singular_coefficients_are_rejected_with_their_size() {
        let matrix =
            Matrix::from_fn(2, 3, |row, column| if row == 0 { 1.0 } else { [1.0, 2.0, 2.0][column] });
        assert!(matches!(check(&matrix), Err(Error::IllConditioned { size: 2, .. })));
        let zero = Matrix::from_fn(1, 2, |_, column| column as f64);
        assert!(matches!(check(&zero), Err(Error::IllConditioned { size: 1, .. })));
    }

    #[test]
    fn condition_number_is_right_for_known_matrices() {
        let check = |rows: &[[f64; 2]; 2], expect: f64| {
            let actual = Matrix::from_fn(2, 2, |row, column| rows[row][column]).condition_number();
            assert!((actual - expect).abs() < 1e-9 * expect, "{rows:?}: {actual} instead of {expect}");
        };
        check(&[[1.0, 0.0], [0.0, 1.0]], 1.0);
        check(&[[3.0, 0.0], [0.0, -0.5]], 6.0);
        check(&[[1.0, 1.0], [1.0, 2.0]], (7.0 + 45.0_f64.sqrt()) / 2.0);
        assert_eq!(Matrix::from_fn(2, 2, |_, _| 1.0).condition_number(), f64::INFINITY);
    }
}
