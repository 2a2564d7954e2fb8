//! Convolutions and their derivatives, image by image.
//!
//! Images are divided into a fixed number of parts, whatever the number of threads, and the parts' gradients of the
//! filters are added in order. So a training run gives the same weights on every machine.

use std::cell::RefCell;

use rayon::prelude::*;

use super::Sliding;
use super::columns::{gather, scatter};
use super::product::{MatrixView, Old, multiply};

/// Number of parts with a separate sum each.
const PARTS: usize = 4;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConvSizes {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) groups: usize,
    pub(super) sliding: Sliding,
}

/// The derivatives of the loss by a convolution's operands, if requested.
pub(super) struct ConvGradients {
    pub(super) x: Option<Vec<f32>>,
    pub(super) weight: Option<Vec<f32>>,
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

    pub(super) fn output(&self) -> usize {
        self.outputs * self.sliding.places()
    }

    /// Whether the windows are the image itself.
    fn is_pointwise(&self) -> bool {
        let Sliding { kernel, strides, before, input, output, .. } = self.sliding;
        (kernel, strides, before) == ([1; 2], [1; 2], [0; 2]) && input == output
    }

    /// The convolution of a batch.
    pub(super) fn forward(&self, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let mut output = vec![0.0; x.len() / self.input().max(1) * self.output()];
        let images = output.par_chunks_exact_mut(self.output()).zip(x.par_chunks_exact(self.input()));
        images.for_each(|(output, image)| self.forward_image(image, weight, bias, output));
        output
    }

    fn forward_image(&self, image: &[f32], weight: &[f32], bias: Option<&[f32]>, output: &mut [f32]) {
        let (seen, filters, places) = (self.seen(), self.filters(), self.sliding.places());
        if let Some(bias) = bias {
            output.chunks_exact_mut(places).zip(bias).for_each(|(output, &bias)| output.fill(bias));
        }
        let old = if bias.is_some() { Old::AddTo } else { Old::Replace };
        self.with_columns(|columns, _| {
            let windows = self.windows(image, columns);
            let groups = output.chunks_exact_mut(filters * places);
            let groups =
                groups.zip(weight.chunks_exact(filters * seen)).zip(windows.chunks_exact(seen * places));
            for ((output, weight), windows) in groups {
                let (weight, windows) =
                    (MatrixView::new(weight, filters, seen), MatrixView::new(windows, seen, places));
                multiply(weight, windows, output, old);
            }
        });
    }

    /// The requested derivatives.
    pub(super) fn backward(
        &self,
        x: &[f32],
        weight: &[f32],
        gradient: &[f32],
        wanted: Wanted,
    ) -> ConvGradients {
        let images = x.len() / self.input().max(1);
        let each = images.div_ceil(PARTS).max(1);
        let mut by_x = vec![0.0; if wanted.has_x() { x.len() } else { 0 }];
        let part = |gradient: &[f32], x: &[f32], mut by_x: Option<&mut [f32]>| {
            let mut sum = vec![0.0; if wanted.has_weight() { weight.len() } else { 0 }];
            let images = gradient.chunks_exact(self.output()).zip(x.chunks_exact(self.input()));
            for (at, (gradient, image)) in images.enumerate() {
                let by_x = by_x.as_deref_mut().map(|by_x| &mut by_x[at * self.input()..][..self.input()]);
                self.backward_image(image, weight, gradient, &mut sum, by_x);
            }
            sum
        };
        let parts = gradient.par_chunks(each * self.output()).zip(x.par_chunks(each * self.input()));
        let sums: Vec<Vec<f32>> = match wanted.has_x() {
            true => {
                let parts = parts.zip(by_x.par_chunks_mut(each * self.input()));
                parts.map(|((gradient, x), by_x)| part(gradient, x, Some(by_x))).collect()
            }
            false => parts.map(|(gradient, x)| part(gradient, x, None)).collect(),
        };
        let mut sums = sums.into_iter();
        let mut by_weight = sums.next().unwrap_or_else(|| vec![0.0; weight.len()]);
        sums.for_each(|sum| by_weight.iter_mut().zip(sum).for_each(|(all, one)| *all += one));
        ConvGradients { x: wanted.has_x().then_some(by_x), weight: wanted.has_weight().then_some(by_weight) }
    }

    /// Adds to the derivative by the filters unless `by_weight` is empty.
    fn backward_image(
        &self,
        image: &[f32],
        weight: &[f32],
        gradient: &[f32],
        by_weight: &mut [f32],
        by_x: Option<&mut [f32]>,
    ) {
        let (seen, filters, places) = (self.seen(), self.filters(), self.sliding.places());
        self.with_columns(|columns, back| {
            let windows = if by_weight.is_empty() { &[] } else { self.windows(image, columns) };
            let groups = by_weight.chunks_exact_mut(filters * seen).zip(windows.chunks_exact(seen * places));
            let gradients = gradient.chunks_exact(filters * places);
            for ((by_weight, windows), gradient) in groups.zip(gradients.clone()) {
                let (gradient, windows) =
                    (MatrixView::new(gradient, filters, places), MatrixView::new(windows, seen, places));
                multiply(gradient, windows.transposed(), by_weight, Old::AddTo);
            }
            let products = |into: &mut [f32]| {
                let groups = into.chunks_exact_mut(seen * places).zip(weight.chunks_exact(filters * seen));
                for ((into, weight), gradient) in groups.zip(gradients) {
                    let weight = MatrixView::new(weight, filters, seen);
                    multiply(
                        weight.transposed(),
                        MatrixView::new(gradient, filters, places),
                        into,
                        Old::Replace,
                    );
                }
            };
            match by_x {
                Some(by_x) if self.is_pointwise() => products(by_x),
                Some(by_x) => {
                    back.resize(self.groups * seen * places, 0.0);
                    products(back);
                    scatter(back, &self.sliding, by_x);
                }
                None => {}
            }
        });
    }

    /// The derivative by the bias.
    pub(super) fn bias_gradient(&self, gradient: &[f32]) -> Vec<f32> {
        let planes = || gradient.chunks_exact(self.sliding.places());
        let each = (0..self.outputs).map(|channel| planes().skip(channel).step_by(self.outputs));
        each.map(|planes| planes.map(|plane| plane.iter().sum::<f32>()).sum()).collect()
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

    fn with_columns(&self, work: impl FnOnce(&mut Vec<f32>, &mut Vec<f32>)) {
        COLUMNS.with_borrow_mut(|[columns, back]| work(columns, back));
    }
}

/// The requested derivatives: the first layer's input needs none, nor do the filters of a frozen network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Input,
    Weight,
    Both,
}

impl Wanted {
    fn has_x(self) -> bool {
        self != Wanted::Weight
    }

    fn has_weight(self) -> bool {
        self != Wanted::Input
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
            let result = layer.forward(&x, &weight, Some(&[0.5; 8]));
            let expected: Vec<f32> =
                x.chunks_exact(layer.input()).flat_map(|image| naive(&layer, image, &weight)).collect();
            let worst = result.iter().zip(&expected).map(|(a, b)| (a - 0.5 - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{layer:?} has an error of {worst}");
            let gradient = numbers(result.len(), 11);
            let found = layer.backward(&x, &weight, &gradient, Wanted::Both);
            let product = dot(&expected, &gradient);
            let (by_x, by_weight) = (found.x.unwrap_or_default(), found.weight.unwrap_or_default());
            for by_operand in [dot(&weight, &by_weight), dot(&x, &by_x)] {
                assert!((by_operand - product).abs() < 1e-3, "{layer:?}: {by_operand} must be {product}");
            }
            assert_eq!(layer.backward(&x, &weight, &gradient, Wanted::Input).x, Some(by_x));
            assert_eq!(layer.backward(&x, &weight, &gradient, Wanted::Weight).weight, Some(by_weight));
            let sum = layer.bias_gradient(&gradient).iter().sum::<f32>();
            assert!((sum - gradient.iter().sum::<f32>()).abs() < 1e-3);
        }
    }
}
