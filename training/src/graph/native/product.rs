//! Matrix products over slices.
#![allow(unsafe_code)] // the product's routine takes pointers; the lengths are asserted right before

/// A matrix in row-major order, or the transpose of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixView<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    is_transposed: bool,
}

impl<'a> MatrixView<'a> {
    pub(super) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} x {columns}");
        Self { values, rows, columns, is_transposed: false }
    }

    pub(super) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, is_transposed: !self.is_transposed, ..self }
    }

    /// Distances of neighbours in a row and in a column.
    fn strides(&self) -> (isize, isize) {
        match self.is_transposed {
            false => (1, self.columns as isize),
            true => (self.rows as isize, 1),
        }
    }
}

/// The treatment of old values in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Old {
    Replace,
    AddTo,
}

/// Writes `left * right` into `result`, on this thread.
pub(super) fn multiply(left: MatrixView<'_>, right: MatrixView<'_>, result: &mut [f32], old: Old) {
    let (rows, columns, inner) = (left.rows, right.columns, left.columns);
    assert_eq!(inner, right.rows, "the sizes of a product");
    assert_eq!(result.len(), rows * columns, "the size of a product");
    let ((left_next, left_down), (right_next, right_down)) = (left.strides(), right.strides());
    // SAFETY: every pointer comes from a slice whose length is rows times columns of its matrix, which the constructor
    // and the assertions above have checked, and strides are those of that matrix.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            result.as_mut_ptr(),
            1,
            columns as isize,
            old == Old::AddTo,
            left.values.as_ptr(),
            left_next,
            left_down,
            right.values.as_ptr(),
            right_next,
            right_down,
            1.0f32,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
