//! Convolutions and their derivatives, image by image.
//!
//! Images are divided into a fixed number of parts, whatever the number of threads, and the parts' gradients of the
//! filters are added in order. So the number of threads does not change the weights that a training run gives.

use std::cell::RefCell;

use rayon::prelude::*;

use super::columns::{Sliding, gather, scatter};

/// Number of parts with a separate sum each.
const PARTS: usize = 4;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvSizes {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) groups: usize,
    pub(super) sliding: Sliding,
}

thread_local! {
    /// Windows of one image; reused, since page faults dominate the cost of a new buffer.
    static COLUMNS: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl ConvSizes {
    /// Channels times taps that one output sees.
    fn seen(&self) -> usize {
        self.inputs / self.groups * self.sliding.taps()
    }

    fn filters(&self) -> usize {
        self.outputs / self.groups
    }

    fn input(&self) -> usize {
        self.inputs * self.sliding.image()
    }

    fn output(&self) -> usize {
        self.outputs * self.sliding.places()
    }

    /// Whether the windows are the image itself.
    fn is_pointwise(&self) -> bool {
        let Sliding { kernel, strides, before, input, output, .. } = self.sliding;
        (kernel, strides, before) == ([1; 2], [1; 2], [0; 2]) && input == output
    }

    /// The convolution of a batch.
    pub(super) fn forward(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut output = vec![0.0; x.len() / self.input().max(1) * self.output()];
        let images = output.par_chunks_exact_mut(self.output()).zip(x.par_chunks_exact(self.input()));
        images.for_each(|(output, image)| self.forward_image(image, weight, output));
        output
    }

    fn forward_image(&self, image: &[f32], weight: &[f32], output: &mut [f32]) {
        let (seen, filters, places) = (self.seen(), self.filters(), self.sliding.places());
        COLUMNS.with_borrow_mut(|[columns, _]| {
            let windows = self.windows(image, columns).chunks_exact(seen * places);
            let groups = output.chunks_exact_mut(filters * places).zip(weight.chunks_exact(filters * seen));
            for ((output, weight), windows) in groups.zip(windows) {
                let (weight, windows) =
                    (MatrixView::new(weight, filters, seen), MatrixView::new(windows, seen, places));
                multiply(weight, windows, output, Old::Replace);
            }
        });
    }

    /// The derivative of the loss by the images.
    pub(super) fn by_input(&self, weight: &[f32], gradient: &[f32]) -> Vec<f32> {
        let mut by_input = vec![0.0; gradient.len() / self.output().max(1) * self.input()];
        let images = by_input.par_chunks_exact_mut(self.input());
        let images = images.zip(gradient.par_chunks_exact(self.output()));
        images.for_each(|(by_image, gradient)| self.by_image(weight, gradient, by_image));
        by_input
    }

    fn by_image(&self, weight: &[f32], gradient: &[f32], by_image: &mut [f32]) {
        let (seen, filters, places) = (self.seen(), self.filters(), self.sliding.places());
        let products = |into: &mut [f32]| {
            let groups = into.chunks_exact_mut(seen * places).zip(weight.chunks_exact(filters * seen));
            for ((into, weight), gradient) in groups.zip(gradient.chunks_exact(filters * places)) {
                let weight = MatrixView::new(weight, filters, seen).transposed();
                multiply(weight, MatrixView::new(gradient, filters, places), into, Old::Replace);
            }
        };
        if self.is_pointwise() {
            return products(by_image);
        }
        COLUMNS.with_borrow_mut(|[_, back]| {
            back.resize(self.groups * seen * places, 0.0);
            products(back);
            scatter(back, &self.sliding, by_image);
        });
    }

    /// The derivative of the loss by the filters.
    pub(super) fn by_weight(&self, x: &[f32], gradient: &[f32]) -> Vec<f32> {
        let size = self.outputs * self.seen();
        let each = (x.len() / self.input().max(1)).div_ceil(PARTS).max(1);
        let parts = gradient.par_chunks(each * self.output()).zip(x.par_chunks(each * self.input()));
        let part = |(gradient, x): (&[f32], &[f32])| {
            let mut sum = vec![0.0; size];
            let images = gradient.chunks_exact(self.output()).zip(x.chunks_exact(self.input()));
            images.for_each(|(gradient, image)| self.add_by_weight(image, gradient, &mut sum));
            sum
        };
        let sums: Vec<Vec<f32>> = parts.map(part).collect();
        let mut by_weight = vec![0.0; size];
        sums.iter().for_each(|sum| by_weight.iter_mut().zip(sum).for_each(|(all, one)| *all += one));
        by_weight
    }

    fn add_by_weight(&self, image: &[f32], gradient: &[f32], by_weight: &mut [f32]) {
        let (seen, filters, places) = (self.seen(), self.filters(), self.sliding.places());
        COLUMNS.with_borrow_mut(|[columns, _]| {
            let windows = self.windows(image, columns).chunks_exact(seen * places);
            let groups = by_weight.chunks_exact_mut(filters * seen).zip(windows);
            for ((by_weight, windows), gradient) in groups.zip(gradient.chunks_exact(filters * places)) {
                let (gradient, windows) =
                    (MatrixView::new(gradient, filters, places), MatrixView::new(windows, seen, places));
                multiply(gradient, windows.transposed(), by_weight, Old::AddTo);
            }
        });
    }

    /// The image's windows, gathered into `columns` unless they equal the image.
    fn windows<'a>(&self, image: &'a [f32], columns: &'a mut Vec<f32>) -> &'a [f32] {
        if self.is_pointwise() {
            return image;
        }
        columns.resize(self.groups * self.seen() * self.sliding.places(), 0.0);
        gather(image, &self.sliding, columns);
        columns
    }
}

/// A matrix in row-major order, or the transpose of one.
#[derive(Clone, Copy, Debug)]
struct MatrixView<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    is_transposed: bool,
}

impl<'a> MatrixView<'a> {
    fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} x {columns}");
        Self { values, rows, columns, is_transposed: false }
    }

    fn transposed(self) -> Self {
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
enum Old {
    Replace,
    AddTo,
}

/// Writes `left * right` into `result`, on this thread.
#[allow(unsafe_code)] // the routine takes pointers; the lengths are asserted right before
fn multiply(left: MatrixView<'_>, right: MatrixView<'_>, result: &mut [f32], old: Old) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|at| (at * step % 23) as f32 / 23.0 - 0.5).collect()
    }

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    /// The convolution by its definition, for one image.
    fn naive(layer: &ConvSizes, image: &[f32], weight: &[f32]) -> Vec<f32> {
        let Sliding { kernel, strides, dilations, before, input, output } = layer.sliding;
        let pixel = |channel: usize, y: usize, x: usize| {
            let (y, x) = (y.checked_sub(before[0])?, x.checked_sub(before[1])?);
            (y < input[0] && x < input[1]).then(|| image[(channel * input[0] + y) * input[1] + x])
        };
        let mut result = Vec::new();
        for filter in 0..layer.outputs {
            let first = filter / layer.filters() * (layer.inputs / layer.groups);
            for place in 0..layer.sliding.places() {
                let seen = (0..layer.seen()).map(|at| {
                    let (channel, tap) = (at / layer.sliding.taps(), at % layer.sliding.taps());
                    let y = place / output[1] * strides[0] + tap / kernel[1] * dilations[0];
                    let x = place % output[1] * strides[1] + tap % kernel[1] * dilations[1];
                    pixel(first + channel, y, x).unwrap_or(0.0) * weight[filter * layer.seen() + at]
                });
                result.push(seen.sum());
            }
        }
        result
    }

    /// A convolution is linear in both operands. So each derivative multiplied by its operand equals the result
    /// multiplied by the gradient.
    #[test]
    fn convolutions_and_derivatives_match_the_definition() {
        for (groups, kernel, stride, dilation, before) in [
            (1, 3, 1, 1, 1),
            (1, 3, 2, 1, 1),
            (2, 5, 1, 1, 2),
            (1, 1, 1, 1, 0),
            (4, 3, 1, 2, 0),
            (2, 1, 2, 1, 0),
            (1, 3, 1, 8, 8),
        ] {
            let sliding = Sliding::square(7, [kernel, stride, dilation, before]);
            let layer = ConvSizes { inputs: 4, outputs: 8, groups, sliding };
            let images = 6;
            let (x, weight) = (numbers(images * layer.input(), 7), numbers(8 * layer.seen(), 5));
            let result = layer.forward(&x, &weight);
            let expected: Vec<f32> =
                x.chunks_exact(layer.input()).flat_map(|image| naive(&layer, image, &weight)).collect();
            let worst = result.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{layer:?} has an error of {worst}");
            let gradient = numbers(result.len(), 11);
            let product = dot(&expected, &gradient);
            let (by_x, by_weight) = (layer.by_input(&weight, &gradient), layer.by_weight(&x, &gradient));
            for by_operand in [dot(&weight, &by_weight), dot(&x, &by_x)] {
                assert!((by_operand - product).abs() < 1e-3, "{layer:?}: {by_operand} must be {product}");
            }
        }
    }
}
