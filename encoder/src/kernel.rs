//! Weighted sums of slices: the loop in which the arithmetic codes spend their time.
//!
//! It reads every term once and writes the output once, sixteen lanes at a time, with the widest vectors of the
//! processor. It adds in the order of the reference loop and fuses nothing, so results equal those of the reference
//! loop to the last bit on every machine.
#![allow(unsafe_code)] // only in code of `multiversion`: a call guarded by its own run-time feature detection

use multiversion::multiversion;

/// Terms that one pass adds; further passes over a block in the cache add the rest.
const FAN_IN: usize = 8;
/// Elements of a block: with eight terms it fits a first-level cache.
const BLOCK: usize = 1024;
const LANES: usize = 16;

/// Computes `outs[j] = sum of weights(j)[i] * terms[i]`, block by block, so that each term is fetched from memory once.
///
/// # Panics
/// If a term is not as long as each output, or the number of weights differs from the number of terms.
pub fn combine<'w>(weights: impl Fn(usize) -> &'w [f32], terms: &[&[f32]], outs: &mut [&mut [f32]]) {
    let len = outs.first().map_or(0, |out| out.len());
    assert!(terms.iter().all(|term| term.len() == len), "each term must be as long as the outputs");
    assert!(outs.iter().all(|out| out.len() == len), "all outputs must have the same length");
    if terms.is_empty() {
        return outs.iter_mut().for_each(|out| out.fill(0.0));
    }
    // One pass over a single sum needs no blocks.
    let block = if outs.len() == 1 && terms.len() <= FAN_IN { len.max(1) } else { BLOCK };
    for start in (0..len).step_by(block) {
        let end = len.min(start + block);
        for (index, out) in outs.iter_mut().enumerate() {
            let weights = weights(index);
            assert_eq!(weights.len(), terms.len(), "each term needs one weight");
            for (group, (weights, terms)) in weights.chunks(FAN_IN).zip(terms.chunks(FAN_IN)).enumerate() {
                pass(weights, terms, start, &mut out[start..end], group > 0);
            }
        }
    }
}

/// Adds up to [`FAN_IN`] terms from `start` on, to the values in `out` if `onto`, otherwise in place of them.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn pass(weights: &[f32], terms: &[&[f32]], start: usize, out: &mut [f32], onto: bool) {
    match terms.len() {
        1 => fixed::<1>(weights, terms, start, out, onto),
        2 => fixed::<2>(weights, terms, start, out, onto),
        3 => fixed::<3>(weights, terms, start, out, onto),
        4 => fixed::<4>(weights, terms, start, out, onto),
        5 => fixed::<5>(weights, terms, start, out, onto),
        6 => fixed::<6>(weights, terms, start, out, onto),
        7 => fixed::<7>(weights, terms, start, out, onto),
        _ => fixed::<8>(weights, terms, start, out, onto),
    }
}

#[inline(always)] // compiles it with the processor features of the caller
fn fixed<const K: usize>(weights: &[f32], terms: &[&[f32]], start: usize, out: &mut [f32], onto: bool) {
    let weights: [f32; K] = std::array::from_fn(|term| weights[term]);
    let terms: [&[f32]; K] = std::array::from_fn(|term| &terms[term][start..start + out.len()]);
    let chunks: [&[[f32; LANES]]; K] = std::array::from_fn(|term| terms[term].as_chunks().0);
    let (out_chunks, out_rest) = out.as_chunks_mut::<LANES>();
    let done = out_chunks.len() * LANES;
    for (index, out) in out_chunks.iter_mut().enumerate() {
        let mut sum = *out;
        for term in 0..K {
            let values = &chunks[term][index];
            for lane in 0..LANES {
                let product = weights[term] * values[lane];
                sum[lane] = if term == 0 && !onto { product } else { sum[lane] + product };
            }
        }
        *out = sum;
    }
    for (index, out) in out_rest.iter_mut().enumerate() {
        for term in 0..K {
            let product = weights[term] * terms[term][done + index];
            *out = if term == 0 && !onto { product } else { *out + product };
        }
    }
}
