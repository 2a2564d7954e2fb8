//! ParM's sum code: P = X_1 + ... + X_k, element by element, and F(X_j) = F_P(P) - the other predictions.
//!
//! Each channel of an image is added to the same channel of the others. The parity model learns the sum of the
//! members' raw outputs. This is the cheapest code (one parity query of a query's size) and the hardest to learn: P
//! does not show which query a feature came from. It recovers one loss. A blank slot adds nothing to either sum.

use crate::kind::{Mixing, Nature, Requirement};
use crate::{Needs, Weighted};

/// The row of the table of codes.
pub(crate) const NATURE: Nature = Nature {
    name: "sum",
    requires: Requirement::ParityModels,
    mixing: Mixing::AddsUp,
    fields: &[],
    parities: |spec| spec.r,
    needs: |_| Needs::AsManyAsMissing,
    build: |spec| Ok(Box::new(Weighted::equal(spec)?)),
};
