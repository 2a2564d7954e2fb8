//! Batch normalisation in training, with the batch's own mean and variance per channel.
#![allow(unsafe_code)] // only what `multiversion` generates: a call guarded by its own run-time feature detection

use multiversion::multiversion;
use rayon::prelude::*;

/// The sizes of a batch: `[batch, channels, ..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planes {
    pub(super) channels: usize,
    /// Elements of a channel of one image.
    pub(super) plane: usize,
}

/// The batch's statistics per channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) mean: Vec<f32>,
    pub(super) variance: Vec<f32>,
}

/// The derivatives of the loss by the operands.
pub(super) struct NormGradients {
    pub(super) x: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
}

impl Planes {
    /// The planes of one channel.
    fn channel<'a>(&self, values: &'a [f32], channel: usize) -> impl Iterator<Item = &'a [f32]> {
        values.chunks_exact(self.plane).skip(channel).step_by(self.channels)
    }

    pub(super) fn measure(&self, x: &[f32]) -> Measured {
        let count = (x.len() / self.channels) as f64;
        let each = (0..self.channels).into_par_iter().map(|channel| {
            let total: f64 = self.channel(x, channel).map(|plane| f64::from(sum(plane))).sum();
            let mean = (total / count) as f32;
            let squares: f64 = self.channel(x, channel).map(|plane| f64::from(squares(plane, mean))).sum();
            (mean, (squares / count) as f32)
        });
        let (mean, variance) = each.unzip();
        Measured { mean, variance }
    }

    /// Every channel times a factor plus a term.
    pub(super) fn forward(
        &self,
        x: &[f32],
        measured: &Measured,
        scale: &[f32],
        shift: &[f32],
        epsilon: f32,
    ) -> Vec<f32> {
        let mut output = vec![0.0; x.len()];
        let planes = output.par_chunks_exact_mut(self.plane).zip(x.par_chunks_exact(self.plane)).enumerate();
        planes.for_each(|(at, (output, x))| {
            let channel = at % self.channels;
            let factor = scale[channel] / (measured.variance[channel] + epsilon).sqrt();
            affine(x, factor, shift[channel] - measured.mean[channel] * factor, output);
        });
        output
    }

    pub(super) fn backward(
        &self,
        x: &[f32],
        gradient: &[f32],
        measured: &Measured,
        scale: &[f32],
        epsilon: f32,
    ) -> NormGradients {
        let count = (x.len() / self.channels) as f64;
        let each = (0..self.channels).into_par_iter().map(|channel| {
            let mean = measured.mean[channel];
            let planes = self.channel(x, channel).zip(self.channel(gradient, channel));
            planes.fold((0.0, 0.0), |(total, along), (x, gradient)| {
                let (one, two) = sums(x, gradient, mean);
                (total + f64::from(one), along + f64::from(two))
            })
        });
        let sums: Vec<(f64, f64)> = each.collect();
        let root = |channel: usize| 1.0 / f64::from(measured.variance[channel] + epsilon).sqrt();
        let mut by_x = vec![0.0; x.len()];
        let planes = by_x.par_chunks_exact_mut(self.plane).zip(x.par_chunks_exact(self.plane));
        let planes = planes.zip(gradient.par_chunks_exact(self.plane)).enumerate();
        planes.for_each(|(at, ((by_x, x), gradient))| {
            let channel = at % self.channels;
            let ((total, along), root) = (sums[channel], root(channel));
            // scale / deviation * (gradient - its mean - normalised x * the mean of their product)
            let factor = f64::from(scale[channel]) * root;
            let slope = -factor * along * root * root / count;
            let term = -factor * total / count - slope * f64::from(measured.mean[channel]);
            combine(x, slope as f32, gradient, factor as f32, term as f32, by_x);
        });
        let by_scale = (0..self.channels).map(|channel| (sums[channel].1 * root(channel)) as f32).collect();
        NormGradients { x: by_x, scale: by_scale, shift: sums.iter().map(|sum| sum.0 as f32).collect() }
    }
}

/// Number of partial sums, so that additions do not wait for each other.
const LANES: usize = 32;

/// The sum of a function of two slices' elements.
macro_rules! lanes {
    (($a:expr, $b:expr), |$x:ident, $y:ident| $term:expr) => {{
        let (a, b) = ($a, $b);
        let mut lanes = [0.0f32; LANES];
        let (blocks, others) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let (rest, other) = (blocks.remainder(), others.remainder());
        for (a, b) in blocks.zip(others) {
            for ((lane, &$x), &$y) in lanes.iter_mut().zip(a).zip(b) {
                *lane += $term;
            }
        }
        lanes.iter().sum::<f32>() + rest.iter().zip(other).map(|(&$x, &$y)| $term).sum::<f32>()
    }};
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
pub(super) fn sum(values: &[f32]) -> f32 {
    lanes!((values, values), |x, _y| x)
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn squares(values: &[f32], mean: f32) -> f32 {
    lanes!((values, values), |x, _y| (x - mean) * (x - mean))
}

/// The sums of the gradients and of their products with the centred values.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn sums(x: &[f32], gradient: &[f32], mean: f32) -> (f32, f32) {
    (lanes!((x, gradient), |_x, g| g), lanes!((x, gradient), |x, g| g * (x - mean)))
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn affine(x: &[f32], factor: f32, term: f32, output: &mut [f32]) {
    output.iter_mut().zip(x).for_each(|(output, x)| *output = x * factor + term);
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn combine(x: &[f32], slope: f32, gradient: &[f32], factor: f32, term: f32, output: &mut [f32]) {
    let operands = x.iter().zip(gradient);
    output
        .iter_mut()
        .zip(operands)
        .for_each(|(to, (x, gradient))| *to = gradient * factor + x * slope + term);
}
