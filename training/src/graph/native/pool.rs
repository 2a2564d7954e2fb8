//! Maximum pooling that records the position of each maximum.
#![allow(unsafe_code)] // only what `multiversion` generates: a call guarded by its own run-time feature detection

use std::ops::Range;

use multiversion::multiversion;
use rayon::prelude::*;

use super::Sliding;

/// Maxima of every plane of `x`, and the tap of its window at which each was found.
pub(super) fn forward(x: &[f32], sliding: &Sliding) -> (Vec<f32>, Vec<u32>) {
    let planes = x.len() / sliding.image().max(1);
    let mut output = vec![f32::NEG_INFINITY; planes * sliding.places()];
    let mut taps = vec![NOWHERE; output.len()];
    let each = output.par_chunks_exact_mut(sliding.places()).zip(taps.par_chunks_exact_mut(sliding.places()));
    each.zip(x.par_chunks_exact(sliding.image())).with_min_len(PLANES).for_each(|((output, taps), plane)| {
        match sliding.strides[1] {
            1 => maxima::<1>(plane, sliding, output, taps),
            2 => maxima::<2>(plane, sliding, output, taps),
            _ => maxima::<0>(plane, sliding, output, taps),
        }
    });
    (output, taps)
}

/// Adds every maximum's gradient to its element.
pub(super) fn backward(gradient: &[f32], taps: &[u32], sliding: &Sliding) -> Vec<f32> {
    let planes = gradient.len() / sliding.places().max(1);
    let mut by_x = vec![0.0; planes * sliding.image()];
    let each = gradient.par_chunks_exact(sliding.places()).zip(taps.par_chunks_exact(sliding.places()));
    let each = by_x.par_chunks_exact_mut(sliding.image()).zip(each).with_min_len(PLANES);
    each.for_each(|(by_x, (gradient, taps))| {
        let width = sliding.output[1];
        for (at, (&gradient, &tap)) in gradient.iter().zip(taps).enumerate() {
            if tap != NOWHERE {
                by_x[sliding.element([at / width, at % width], tap as usize)] += gradient;
            }
        }
    });
    by_x
}

/// No tap: the window lies outside the image.
const NOWHERE: u32 = u32::MAX;

/// Planes that are worth a separate thread.
const PLANES: usize = 32;

/// The lines of places whose `tap` lies inside the image, and the element at which each line's first reads.
#[inline]
fn lines(sliding: &Sliding, tap: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    let (ys, from_y) = sliding.inside(0, tap / sliding.kernel[1]);
    let (xs, from_x) = sliding.inside(1, tap % sliding.kernel[1]);
    let ([stride, _], [_, input], [_, output]) = (sliding.strides, sliding.input, sliding.output);
    let ys = if xs.is_empty() { 0..0 } else { ys };
    ys.enumerate().map(move |(number, y)| {
        let element = (from_y + number * stride) * input + from_x;
        (y * output + xs.start..y * output + xs.end, element)
    })
}

/// The maxima of a plane, tap by tap. The first of equal values wins, and a NaN stays. `STRIDE` is the stride along a
/// line if the compiler can vectorise it, otherwise 0.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn maxima<const STRIDE: usize>(plane: &[f32], sliding: &Sliding, output: &mut [f32], taps: &mut [u32]) {
    let stride = if STRIDE == 0 { sliding.strides[1] } else { STRIDE };
    for tap in 0..sliding.taps() {
        for (places, element) in lines(sliding, tap) {
            let (output, taps) = (&mut output[places.clone()], &mut taps[places]);
            let values = &plane[element..][..(output.len() - 1) * stride + 1];
            for (at, (output, taken)) in output.iter_mut().zip(taps).enumerate() {
                let value = values[at * stride];
                let is_larger = (value > *output) | value.is_nan();
                *output = if is_larger { value } else { *output };
                *taken = if is_larger { tap as u32 } else { *taken };
            }
        }
    }
}
