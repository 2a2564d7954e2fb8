//! The sum code for more than one loss: r parities, each a different weighted sum, P_j = sum of c_ji X_i.
//!
//! Parity model j learns the sum of c_ji F(X_i). One P for two parity models with different targets cannot work: P does
//! not change when queries swap places, so no function of P can tell them apart. If every square sub-matrix of c is
//! well conditioned, any k of the k + r outputs give the rest; see [`coefficients`](crate::coefficients). A blank slot
//! adds nothing to any sum.

use crate::kind::{Mixing, Nature, Requirement};
use crate::linear::{Linear, MAX_K, MAX_R, coefficients};
use crate::matrix::Matrix;
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Workspace};

/// The row of the table of codes.
pub(crate) const NATURE: Nature = Nature {
    name: "weighted",
    requires: Requirement::ParityModels,
    mixing: Mixing::AddsUp,
    fields: &["coefficients"],
    parities: |spec| spec.r,
    needs: |_| Needs::AsManyAsMissing,
    build: |spec| Ok(Box::new(Weighted::new(spec)?)),
};

/// Weighted sums.
#[derive(Debug)]
pub struct Weighted {
    spec: CodeSpec,
    linear: Linear,
}

impl Weighted {
    /// `spec.r` sums of `spec.k` queries, with the coefficients of the spec or designed ones.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(1..=MAX_K, 1..=MAX_R)?;
        Ok(Self { spec: spec.clone(), linear: Linear::new(&coefficients(spec)?) })
    }

    /// One sum of `spec.k` queries with equal weights, the code `sum`; `spec.r` must be 1.
    pub fn equal(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(1..=MAX_K, 1..=1)?;
        Ok(Self { spec: spec.clone(), linear: Linear::new(&Matrix::from_fn(1, spec.k, |_, _| 1.0)) })
    }
}

impl Code for Weighted {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn encode_checked(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.linear.encode(members.queries, parities);
        Ok(())
    }

    fn decode_checked(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        self.linear.decode(received, slot, prediction);
        Ok(())
    }
}
