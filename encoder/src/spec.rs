//! The stored form of a code: its kind and parameters, as in a bundle. Building the code checks every number.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::berrut::Berrut;
use crate::linear::{Linear, Weighted};
use crate::slots::Slots;
use crate::tiles::Tiles;
use crate::{Code, Error, Kind, Needs, Recovery};

/// The output of a parity model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// One output: the weighted sum of the members' outputs. Decoding subtracts the outputs that have arrived.
    Sum,
    /// k outputs, one per slot. Decoding reads one of them.
    Slots,
}

/// A code and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeSpec {
    /// The code.
    pub kind: Kind,
    /// Queries per group.
    pub k: usize,
    /// Parities per group. Default 1.
    #[serde(default = "one")]
    pub r: usize,
    /// `tiles` and `slots`: the output of the parity models. Default `slots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
}

fn one() -> usize {
    1
}

impl CodeSpec {
    /// A code with the default parameters.
    pub fn new(kind: Kind, k: usize, r: usize) -> Self {
        Self { kind, k, r, head: None }
    }

    /// Checks the parameters and builds the code. [`Learned::new`](crate::Learned::new) builds `learned`.
    pub fn build(&self) -> Result<Box<dyn Code>, Error> {
        Ok(match self.kind {
            Kind::Sum | Kind::Weighted | Kind::Mds => Box::new(Weighted::new(self)?),
            Kind::Tiles => Box::new(Tiles::new(self)?),
            Kind::Slots => Box::new(Slots::new(self)?),
            Kind::Berrut => Box::new(Berrut::new(self)?),
            Kind::Learned => return Err(Error::NeedsNets),
        })
    }

    /// The losses that it recovers.
    pub fn recovery(&self) -> Recovery {
        let Self { k, r, .. } = *self;
        let (parities, needs) = match self.kind {
            Kind::Berrut => (k + r, Needs::AnyOutputs(k)),
            _ if self.parity_head() == Some(Head::Slots) => (r, Needs::OneParity),
            _ => (r, Needs::AsManyAsMissing),
        };
        Recovery { k, parities, needs }
    }

    /// The output of its parity models; `None` if the deployed model serves the parities.
    pub fn parity_head(&self) -> Option<Head> {
        let chosen = if self.kind.chooses_head() { self.head.unwrap_or(Head::Slots) } else { Head::Sum };
        self.kind.has_parity_models().then_some(chosen)
    }

    /// The weights of the members' predictions in the outputs of the head `sum`: r rows of k.
    pub fn weights(&self) -> Result<Vec<Vec<f32>>, Error> {
        Linear::new(self.k, self.r).map(Linear::into_rows)
    }

    /// Length of a parity model's output divided by a prediction's: k for the head `slots`, otherwise 1.
    pub fn output_scale(&self) -> usize {
        if self.parity_head() == Some(Head::Slots) { self.k } else { 1 }
    }

    /// Elements of a parity query divided by a query's: k if queries are concatenated, otherwise 1.
    pub fn query_scale(&self) -> usize {
        if self.kind.is_side_by_side() { self.k } else { 1 }
    }

    /// Checks k and r against the limits of a code, and rejects a head that the kind does not have: it would be ignored
    /// silently.
    pub(crate) fn check(&self, k: RangeInclusive<usize>, r: RangeInclusive<usize>) -> Result<(), Error> {
        let kind = self.kind;
        if self.head.is_some() && !kind.chooses_head() {
            return Err(Error::UnusedHead { kind });
        }
        if !k.contains(&self.k) {
            return Err(Error::Queries { kind, k: self.k, min: *k.start(), max: *k.end() });
        }
        if !r.contains(&self.r) {
            return Err(Error::Parities { kind, k: self.k, r: self.r, min: *r.start(), max: *r.end() });
        }
        Ok(())
    }
}
