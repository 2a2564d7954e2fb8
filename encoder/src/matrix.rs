//! Small dense f64 matrices for the coefficients of codes. The hot path of a query's tensor does not use them.

/// A row-major matrix.
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

    /// Solves `self X = right` by Gaussian elimination with pivoting; `None` if this square matrix is singular.
    pub fn solve(&self, right: &Matrix) -> Option<Matrix> {
        let (size, mut left, mut right) = (self.rows, self.clone(), right.clone());
        for column in 0..size {
            let pivot = (column..size)
                .max_by(|a, b| left.at(*a, column).abs().total_cmp(&left.at(*b, column).abs()))?;
            if left.at(pivot, column) == 0.0 {
                return None;
            }
            left.swap_rows(column, pivot);
            right.swap_rows(column, pivot);
            for row in 0..size {
                if row != column {
                    let factor = left.at(row, column) / left.at(column, column);
                    left.subtract_row(row, column, factor);
                    right.subtract_row(row, column, factor);
                }
            }
        }
        Some(Matrix::from_fn(size, right.columns, |row, column| right.at(row, column) / left.at(row, row)))
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

    fn swap_rows(&mut self, a: usize, b: usize) {
        for column in 0..self.columns {
            self.values.swap(a * self.columns + column, b * self.columns + column);
        }
    }

    fn subtract_row(&mut self, from: usize, what: usize, factor: f64) {
        for column in 0..self.columns {
            let value = self.at(what, column) * factor;
            self.values[from * self.columns + column] -= value;
        }
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

    #[test]
    fn solve_undoes_a_product() {
        let left = Matrix::from_fn(4, 4, |row, column| 1.0 / (row as f64 + column as f64 * 2.0 + 1.0));
        let x = Matrix::from_fn(4, 2, |row, column| row as f64 - 3.0 * column as f64);
        let product = |row, column| -> f64 { (0..4).map(|at| left.at(row, at) * x.at(at, column)).sum() };
        let solved = left.solve(&Matrix::from_fn(4, 2, product)).expect("regular");
        for row in 0..4 {
            for column in 0..2 {
                assert!((solved.at(row, column) - x.at(row, column)).abs() < 1e-8);
            }
        }
        assert_eq!(Matrix::from_fn(2, 2, |_, _| 1.0).solve(&Matrix::from_fn(2, 1, |_, _| 1.0)), None);
    }
}
