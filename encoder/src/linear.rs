//! The linear algebra of `sum`, `weighted`, `mds` and the head `sum`: r weighted sums of k vectors.
//!
//! Encoding is a weighted sum of queries, and decoding one lost slot is a weighted sum of outputs. The decoder takes
//! the lost slot's column of coefficients (over the parities that arrived) and makes it orthogonal to the columns of
//! the other missing slots. The remainder selects that slot from the parity outputs while the others cancel. With more
//! parities than losses this is the least-squares estimate, which uses every output. Matrices are at most 4 x 4 and
//! live on the stack.

use crate::matrix::Matrix;
use crate::{Error, Received, kernel};

/// The most queries per group of a linear code: every square sub-matrix of its coefficients is checked.
pub(crate) const MAX_K: usize = 16;
/// The most parities of a linear code, for the same reason.
pub(crate) const MAX_R: usize = 4;

/// r rows of k coefficients.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    k: usize,
    exact: Matrix,
    rounded: Vec<f32>,
}

impl Linear {
    /// Rounds the coefficients to f32 first, so that encoder and decoder use the same numbers.
    pub(crate) fn new(coefficients: &Matrix) -> Self {
        let rounded = coefficients.to_f32();
        let k = coefficients.columns();
        let exact =
            Matrix::from_fn(coefficients.rows(), k, |row, column| f64::from(rounded[row * k + column]));
        Self { k, exact, rounded }
    }

    /// Writes every parity query. Blank slots add nothing.
    pub(crate) fn encode(&self, queries: &[Option<&[f32]>], parities: &mut [&mut [f32]]) {
        let mut terms: [&[f32]; MAX_K] = [&[]; MAX_K];
        let mut weights = [[0.0_f32; MAX_K]; MAX_R];
        let mut count = 0;
        for (slot, query) in queries.iter().enumerate() {
            let Some(query) = query else { continue };
            terms[count] = query;
            for (parity, weights) in weights.iter_mut().enumerate().take(self.exact.rows()) {
                weights[count] = self.rounded[parity * self.k + slot];
            }
            count += 1;
        }
        kernel::combine_each(|parity| &weights[parity][..count], &terms[..count], parities);
    }

    /// Writes the prediction of `slot`, which the caller has checked to be recoverable.
    pub(crate) fn decode(&self, received: Received<'_>, slot: usize, prediction: &mut [f32]) {
        self.decode_columns(received, slot, |slot| slot, prediction);
    }

    /// As [`decode`](Self::decode), with the column of each slot given by `column_of`.
    pub(crate) fn decode_columns(
        &self,
        received: Received<'_>,
        slot: usize,
        column_of: impl Fn(usize) -> usize,
        prediction: &mut [f32],
    ) {
        let arrived = received.arrived();
        let missing = arrived.members.without(arrived.predictions);
        let picker = self.picker(&received, column_of(slot), || {
            missing.iter().filter(|other| *other != slot).map(&column_of)
        });
        let mut terms: [&[f32]; MAX_K + MAX_R] = [&[]; MAX_K + MAX_R];
        let mut weights = [0.0_f32; MAX_K + MAX_R];
        let mut count = 0;
        for (parity, output) in received.parities.iter().enumerate() {
            if let Some(output) = output {
                (terms[count], weights[count]) = (output, picker[parity] as f32);
                count += 1;
            }
        }
        for (other, output) in received.predictions.iter().enumerate() {
            if let Some(output) = output
                && other != slot
                && received.members.contains(other)
            {
                let column = column_of(other);
                let weight: f64 =
                    (0..self.exact.rows()).map(|row| picker[row] * self.exact.at(row, column)).sum();
                (terms[count], weights[count]) = (output, -weight as f32);
                count += 1;
            }
        }
        kernel::combine(&weights[..count], &terms[..count], prediction);
    }

    /// The weight of each parity output: the dual vector of `column` against the `others`, zero for parities that have
    /// not arrived. Two passes of Gram-Schmidt: for four vectors it is as accurate as a factorisation.
    fn picker<I: Iterator<Item = usize>>(
        &self,
        received: &Received<'_>,
        column: usize,
        others: impl Fn() -> I,
    ) -> [f64; MAX_R] {
        let load = |column: usize| -> [f64; MAX_R] {
            std::array::from_fn(|row| match received.parities.get(row) {
                Some(Some(_)) => self.exact.at(row, column),
                _ => 0.0,
            })
        };
        let mut basis = [[0.0; MAX_R]; MAX_R];
        let mut size = 0;
        for other in others() {
            let rest = remainder(load(other), &basis[..size]);
            let length = dot(&rest, &rest).sqrt();
            basis[size] = rest.map(|value| value / length);
            size += 1;
        }
        let rest = remainder(load(column), &basis[..size]);
        let square = dot(&rest, &rest);
        rest.map(|value| value / square)
    }
}

/// Checks and returns the coefficients of a spec, or the designed ones.
pub(crate) fn coefficients(spec: &crate::CodeSpec) -> Result<Matrix, Error> {
    let Some(rows) = &spec.coefficients else {
        return crate::coefficients::design(spec.k, spec.r)
            .ok_or(Error::NotDesigned { k: spec.k, r: spec.r });
    };
    if rows.len() != spec.r {
        return Err(Error::CoefficientRows { expected: spec.r, actual: rows.len() });
    }
    for (row, numbers) in rows.iter().enumerate() {
        if numbers.len() != spec.k {
            return Err(Error::CoefficientShape { row, expected: spec.k, actual: numbers.len() });
        }
        if let Some(value) = numbers.iter().find(|value| !value.is_finite()) {
            return Err(Error::NotANumber { value: f64::from(*value) });
        }
    }
    let matrix = Matrix::from_fn(spec.r, spec.k, |row, column| f64::from(rows[row][column]));
    crate::coefficients::check(&matrix)?;
    Ok(matrix)
}

fn remainder(mut vector: [f64; MAX_R], basis: &[[f64; MAX_R]]) -> [f64; MAX_R] {
    for _pass in 0..2 {
        for direction in basis {
            let along = dot(&vector, direction);
            for (value, direction) in vector.iter_mut().zip(direction) {
                *value -= along * direction;
            }
        }
    }
    vector
}

fn dot(a: &[f64; MAX_R], b: &[f64; MAX_R]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
