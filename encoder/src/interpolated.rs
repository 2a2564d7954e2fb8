//! What the codes without training share: a smooth curve through the queries, sampled at other points.
//!
//! `berrut` and `spline` think of the k queries as values of a curve u at points alpha_j, send u(beta_i) for k + r
//! other points to instances of the deployed model, and read F(u(alpha_j)) off a curve through what comes back.
//! Curve and samples are both linear in the values, so encoding and decoding are weighted sums. The codes are not
//! systematic: every answer is an approximation, even for a linear model, and a group must be full.

use crate::matrix::Matrix;
use crate::{CodeSpec, Error, Members, Received, kernel};

/// Outputs that a decoder adds up at most.
pub(crate) const MAX_CODED: usize = 64;

/// The encoding matrix, (k + r) x k.
#[derive(Debug)]
pub(crate) struct Samples {
    weights: Vec<f32>,
    k: usize,
}

impl Samples {
    pub(crate) fn new(matrix: &Matrix) -> Self {
        Self { weights: matrix.to_f32(), k: matrix.columns() }
    }

    pub(crate) fn encode(
        &self,
        spec: &CodeSpec,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
    ) -> Result<(), Error> {
        let present = members.present().len();
        if present < self.k {
            return Err(Error::PartialGroup { kind: spec.kind, members: present, k: self.k });
        }
        let mut terms: [&[f32]; MAX_CODED] = [&[]; MAX_CODED];
        for (term, query) in terms.iter_mut().zip(members.queries.iter().flatten()) {
            *term = query;
        }
        kernel::combine_each(|point| &self.weights[point * self.k..][..self.k], &terms[..self.k], parities);
        Ok(())
    }
}

/// Writes the sum of the outputs that are in, weighted by their rank among them.
pub(crate) fn decode(
    received: Received<'_>,
    prediction: &mut [f32],
    weigh: impl FnOnce(&mut [f32]),
) -> Result<(), Error> {
    let mut terms: [&[f32]; MAX_CODED] = [&[]; MAX_CODED];
    let mut weights = [0.0_f32; MAX_CODED];
    let mut count = 0;
    for output in received.parities.iter().flatten() {
        terms[count] = output;
        count += 1;
    }
    weigh(&mut weights[..count]);
    kernel::combine(&weights[..count], &terms[..count], prediction);
    Ok(())
}
