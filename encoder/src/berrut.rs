//! Berrut's rational interpolation (BACC, ApproxIFER): no training, any model, every answer approximate.
//!
//! The k queries are values of a curve u at points alpha_j (Chebyshev points of the first kind). The code sends
//! u(beta_i) for k + r points of the second kind to instances of the deployed model, and reads F(u(alpha_j)) off a
//! curve through the outputs that return. Both curves are linear in their values, so encoding and decoding are
//! weighted sums. The code is not systematic and needs a full group. Only constants are reconstructed exactly.
//!
//! Berrut's weights alternate in sign, which keeps the denominator from vanishing anywhere on the line. When decoding,
//! the sign alternates by *position* among the outputs that returned, not by their index: with gaps, the signs of the
//! indices would allow poles between the points.

use std::f64::consts::PI;

use crate::{Code, CodeSpec, Error, Members, Received, Workspace, kernel};

/// The most outputs that a decoder adds up.
const MAX_CODED: usize = 64;

/// The Berrut code.
#[derive(Debug)]
pub(crate) struct Berrut {
    spec: CodeSpec,
    /// The encoding matrix, k + r rows of k.
    weights: Vec<f32>,
    queries: Vec<f64>,
    outputs: Vec<f64>,
}

impl Berrut {
    /// `spec.k` queries at `spec.k + spec.r` points.
    pub(crate) fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check(2..=32, 1..=32)?;
        let (k, coded) = (spec.k, spec.k + spec.r);
        let queries: Vec<f64> = (0..k).map(|j| ((2 * j + 1) as f64 * PI / (2 * k) as f64).cos()).collect();
        let outputs: Vec<f64> = (0..coded).map(|i| (i as f64 * PI / (coded - 1) as f64).cos()).collect();
        let mut weights = vec![0.0; coded * k];
        for (row, beta) in weights.chunks_mut(k).zip(&outputs) {
            basis(&queries, *beta, |index, weight| row[index] = weight as f32);
        }
        Ok(Self { spec: spec.clone(), weights, queries, outputs })
    }
}

/// Berrut's basis functions of `nodes` at `point`. A point on a node has that node's value.
fn basis(nodes: &[f64], point: f64, mut set: impl FnMut(usize, f64)) {
    let hit = nodes.iter().position(|node| (point - node).abs() < 1e-12);
    let term = |(index, node): (usize, &f64)| match hit {
        Some(hit) => f64::from(u8::from(hit == index)),
        None if index % 2 == 0 => 1.0 / (point - node),
        None => -1.0 / (point - node),
    };
    let total: f64 = nodes.iter().enumerate().map(term).sum();
    for (index, node) in nodes.iter().enumerate() {
        set(index, term((index, node)) / total);
    }
}

impl Code for Berrut {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let (kind, k) = (self.spec.kind, self.spec.k);
        let present = members.present().len();
        if present < k {
            return Err(Error::PartialGroup { kind, members: present, k });
        }
        let mut terms: [&[f32]; MAX_CODED] = [&[]; MAX_CODED];
        for (term, query) in terms.iter_mut().zip(members.queries.iter().flatten()) {
            *term = query;
        }
        kernel::combine(|point| &self.weights[point * k..][..k], &terms[..k], parities);
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        let mut terms: [&[f32]; MAX_CODED] = [&[]; MAX_CODED];
        let mut nodes = [0.0; MAX_CODED];
        let mut count = 0;
        for (output, node) in received.parities.iter().zip(&self.outputs) {
            if let Some(output) = output {
                (terms[count], nodes[count]) = (output, *node);
                count += 1;
            }
        }
        let mut weights = [0.0_f32; MAX_CODED];
        basis(&nodes[..count], self.queries[slot], |index, weight| weights[index] = weight as f32);
        kernel::combine(|_| &weights[..count], &terms[..count], &mut [prediction]);
        Ok(())
    }
}
