//! The sum code for more than one loss: r parities, each a differently weighted sum, P_j = sum of c_ji X_i.
//!
//! Parity model j learns sum of c_ji F(X_i). Sending the same P to both parity models with two targets cannot work: P
//! does not change when queries swap places, so no function of P can tell which of them weighs 2. With distinct
//! encodings, and every square sub-matrix of c well conditioned, any k of the k + r results give the rest; see
//! [`coefficients`](crate::coefficients) for the choice. A blank slot adds nothing to any sum.

use crate::code::{OutputSizes, check_parities, floats_only};
use crate::linear::{Linear, MAX_K, MAX_R, coefficients};
use crate::{Code, CodeSpec, Error, Input, Members, Needs, Received, Recovery, Workspace};

/// Weighted sums.
#[derive(Debug)]
pub struct Weighted {
    spec: CodeSpec,
    linear: Linear,
}

impl Weighted {
    /// `spec.r` sums of `spec.k` queries, with the coefficients of the spec or designed ones.
    pub fn new(spec: &CodeSpec) -> Result<Self, Error> {
        spec.check_sizes((1, MAX_K), (1, MAX_R))?;
        Ok(Self { spec: spec.clone(), linear: Linear::new(&coefficients(spec)?) })
    }
}

impl Code for Weighted {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn recovery(&self) -> Recovery {
        Recovery { k: self.spec.k, parities: self.spec.r, needs: Needs::AsManyAsMissing }
    }

    fn parity_dims(&self, input: Input<'_>) -> Result<Vec<usize>, Error> {
        floats_only(&self.spec, input)?;
        Ok(input.dims.to_vec())
    }

    fn encode(
        &self,
        members: Members<'_, f32>,
        parities: &mut [&mut [f32]],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        members.check(self.spec.k, members.input.len())?;
        check_parities(parities, self.spec.r, members.input.len())?;
        self.linear.encode(members.queries, parities);
        Ok(())
    }

    fn decode(
        &self,
        received: Received<'_>,
        slot: usize,
        prediction: &mut [f32],
        _: &mut Workspace,
    ) -> Result<(), Error> {
        received.check(self.recovery(), slot, OutputSizes::same(prediction.len()))?;
        self.linear.decode(received, slot, prediction);
        Ok(())
    }
}
