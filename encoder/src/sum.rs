//! ParM's sum code: P = X_1 + ... + X_k, element by element, and F(X_j) = F_P(P) - the other predictions.
//!
//! Each channel of an image is added to the same channel of the others. The parity model learns the sum of the
//! members' raw outputs. This is the cheapest code (one parity query of a query's size) and the hardest to learn: P
//! does not show which query a feature came from. It recovers one loss. A blank slot adds nothing to either sum.

use crate::kind::{Mixing, Nature, Requirement};
use crate::linear::{Linear, MAX_K};
use crate::matrix::Matrix;
use crate::{Code, CodeSpec, Error, Members, Needs, Received, Workspace};

/// The row of the table of codes.
pub(crate) const NATURE: Nature = Nature {
    name: "sum",
    requires: Requirement::ParityModels,
    mixing: Mixing::AddsUp,
    fields: &[],
    parities: |spec| spec.r,
    needs: |_| Needs::AsManyAsMissing,
    build: |spec| Ok(Box::new(Sum::new(spec)?)),
};

/// The sum code.
#[derive(Debug)]
pub struct Sum {
    spec: CodeSpec,
    linear: Linear,
}

impl Sum {
    /// A sum of `spec.k` queries; `spec.r` must be 1.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes(1..=MAX_K, 1..=1)?;
        Ok(Self { spec: spec.clone(), linear: Linear::new(&Matrix::from_fn(1, spec.k, |_, _| 1.0)) })
    }
}

impl Code for Sum {
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
