//! Symmetric matrices: the linear algebra of least squares (Cholesky factor, solution, inverse).

/// A square matrix of doubles, row after row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Square {
    pub(super) size: usize,
    pub(super) values: Vec<f64>,
}

impl Square {
    pub(super) fn zeros(size: usize) -> Self {
        Self { size, values: vec![0.0; size * size] }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.size + column]
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.size..(row + 1) * self.size]
    }

    /// The mean of the diagonal.
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

/// A lower triangular matrix.
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

    /// The inverse of the factored matrix.
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

/// A dot product; eight partial sums, so that the compiler uses vector instructions.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_runs, b_runs) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a_runs.remainder().iter().zip(b_runs.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_runs.zip(b_runs) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let values = parm_random::Random::new(3).normals(12 * 9);
        let mut matrix = Square::zeros(9);
        for (row, column) in (0..9).flat_map(|row| (0..9).map(move |column| (row, column))) {
            let products = (0..12).map(|at| f64::from(values[at * 9 + row] * values[at * 9 + column]));
            matrix.values[row * 9 + column] = products.sum();
        }
        let inverse = matrix.clone().factored().unwrap().inverse();
        for (row, column) in (0..9).flat_map(|row| (0..9).map(move |column| (row, column))) {
            let product = dot(matrix.row(row), inverse.row(column));
            let expected = f64::from(u8::from(row == column));
            assert!((product - expected).abs() < 1e-6, "{product} in {row}, {column}");
        }
    }

    #[test]
    fn factored_returns_none_when_not_positive_definite() {
        assert!(Square { size: 2, values: vec![1.0, 2.0, 2.0, 1.0] }.factored().is_none());
        assert!(Square::zeros(1).factored().is_none());
    }
}
