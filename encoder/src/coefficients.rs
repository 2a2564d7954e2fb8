//! The built-in coefficients of the linear codes, and measures of their quality.
//!
//! Any r losses can be solved for if every square sub-matrix is regular. They can be solved for accurately if each is
//! well conditioned, because the inverse multiplies the errors of a parity model. Positive Cauchy or Vandermonde rows
//! are regular but nearly parallel, so they multiply errors. A random search found these: it minimised the largest
//! error gain over all loss patterns. The first row is ones, so that parity 0 is always ParM's sum. All rows have one
//! length, and their sums are far from zero, because `mds` scales rows to a sum of one.
//!
//! `cargo run -p parm-encoder --example conditioning` prints the worst condition numbers and error gains.

use crate::Error;
use crate::linear::MAX_K;
use crate::matrix::Matrix;

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

/// The quality of a matrix of coefficients.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditioning {
    /// Worst condition numbers of the square sub-matrices of size 1, 2 and so on. The first is infinite if a
    /// coefficient is zero, otherwise 1.
    pub worst: Vec<f64>,
    /// The largest factor by which a reconstruction multiplies independent errors of the outputs, over all patterns
    /// with as many losses as parities. Rows are first scaled to the length of a sum of k.
    pub gain: f64,
}

/// Measures every square sub-matrix.
pub fn conditioning(coefficients: &Matrix) -> Conditioning {
    let (r, k) = (coefficients.rows(), coefficients.columns());
    let length = |row: usize| (coefficients.row(row).iter().map(|c| c * c).sum::<f64>() / k as f64).sqrt();
    let lengths: Vec<f64> = (0..r).map(length).collect();
    let scaled = Matrix::from_fn(r, k, |row, column| coefficients.at(row, column) / lengths[row]);
    let mut worst = vec![1.0_f64; r.min(k)];
    let mut gain = 0.0_f64;
    for (size, worst) in worst.iter_mut().enumerate().map(|(index, worst)| (index + 1, worst)) {
        for rows in choices(r, size) {
            let used = Matrix::from_fn(size, k, |row, column| scaled.at(rows[row], column));
            for columns in choices(k, size) {
                let square = Matrix::from_fn(size, size, |row, column| used.at(row, columns[column]));
                *worst = worst.max(square.condition_number());
                let (Some(inverse), Some(effect)) = (square.solve(&identity(size)), square.solve(&used))
                else {
                    gain = f64::INFINITY;
                    continue;
                };
                for row in 0..size {
                    let sum =
                        |matrix: &Matrix| matrix.row(row).iter().map(|value| value * value).sum::<f64>();
                    gain = gain.max((sum(&inverse) + sum(&effect) - 1.0).sqrt());
                }
            }
        }
    }
    Conditioning { worst, gain }
}

/// Rejects coefficients that cannot be solved for accurately.
pub(crate) fn check(coefficients: &Matrix) -> Result<(), Error> {
    for (index, condition) in conditioning(coefficients).worst.into_iter().enumerate() {
        if condition > CONDITION_LIMIT {
            return Err(Error::IllConditioned { size: index + 1, condition, limit: CONDITION_LIMIT });
        }
    }
    Ok(())
}

fn identity(size: usize) -> Matrix {
    Matrix::from_fn(size, size, |row, column| f64::from(u8::from(row == column)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designed_matrices_are_well_conditioned() {
        for r in 1..=DESIGNED_R {
            for k in 1..=DESIGNED_K {
                let matrix = design(k, r).expect("designed");
                let Conditioning { worst, gain } = conditioning(&matrix);
                assert!(worst.iter().all(|condition| *condition < 60.0), "k {k} r {r}: {worst:?}");
                assert!(k == 1 || gain < 70.0, "k {k} r {r}: gain {gain}");
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
}
