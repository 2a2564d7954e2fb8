//! The stored form of a code: its kind and parameters, as in a bundle. Building the code checks every number.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{Code, Error, Kind, Recovery, linear};

/// The output of a parity model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// One output: the weighted sum of the members' outputs. Decoding subtracts the outputs that have arrived.
    Sum,
    /// k outputs, one per slot. Decoding reads one of them.
    Slots,
}

/// The axis of an input's channels (or features).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The first dimension of a query: C, or C x H x W.
    #[default]
    ChannelsFirst,
    /// The last: H x W x C, or time x features.
    ChannelsLast,
}

/// Rows and columns of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Tiles from top to bottom.
    pub rows: usize,
    /// Tiles from left to right.
    pub columns: usize,
}

/// A code and its parameters. Omitted fields have defaults; a field that the kind does not use must be omitted.
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
    /// `weighted` and the head `sum`: r rows of k weights. Default: well-conditioned ones
    /// ([`coefficients::design`](crate::coefficients::design)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coefficients: Option<Vec<Vec<f32>>>,
    /// `tiles` and `slots`: the place of each member, a permutation of 0..k. Default 0, 1, 2...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<usize>>,
    /// `tiles`: the grid. Default: the squarest one with k cells, wider than high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<Grid>,
    /// `tiles` and `slots`: the axis of the channels. Default `channels_first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
}

fn one() -> usize {
    1
}

impl CodeSpec {
    /// A code with the default parameters.
    pub fn new(kind: Kind, k: usize, r: usize) -> Self {
        Self { kind, k, r, head: None, coefficients: None, order: None, grid: None, layout: None }
    }

    /// Checks the parameters and builds the code. [`Learned::new`](crate::Learned::new) builds `learned`.
    pub fn build(&self) -> Result<Box<dyn Code>, Error> {
        self.check_fields()?;
        self.kind.build(self)
    }

    /// The losses that it recovers.
    pub fn recovery(&self) -> Recovery {
        Recovery { k: self.k, parities: self.kind.parities(self), needs: self.kind.needs(self) }
    }

    /// The output of its parity models; `None` if the deployed model serves the parities.
    pub fn parity_head(&self) -> Option<Head> {
        let chosen = if self.kind.chooses_head() { self.head.unwrap_or(Head::Slots) } else { Head::Sum };
        self.kind.has_parity_models().then_some(chosen)
    }

    /// The weights of the members' predictions in the outputs of the head `sum`: r rows of k.
    pub fn weights(&self) -> Result<Vec<Vec<f32>>, Error> {
        let weights = linear::coefficients(self)?.to_f32();
        Ok(weights.chunks_exact(self.k).map(<[f32]>::to_vec).collect())
    }

    /// Length of a parity model's output divided by a prediction's: k for the head `slots`, otherwise 1.
    pub fn output_scale(&self) -> usize {
        if self.parity_head() == Some(Head::Slots) { self.k } else { 1 }
    }

    /// Elements of a parity query divided by a query's: k if queries are concatenated, otherwise 1.
    pub fn query_scale(&self) -> usize {
        if self.kind.is_side_by_side() { self.k } else { 1 }
    }

    /// Rejects fields that the kind does not use: they would be ignored silently.
    pub(crate) fn check_fields(&self) -> Result<(), Error> {
        let used = self.kind.fields();
        let given = [
            ("head", self.head.is_some()),
            ("coefficients", self.coefficients.is_some()),
            ("order", self.order.is_some()),
            ("grid", self.grid.is_some()),
            ("layout", self.layout.is_some()),
        ];
        let has_use = |field: &str| {
            used.contains(&field) && (field != "coefficients" || self.parity_head() == Some(Head::Sum))
        };
        match given.into_iter().find(|(field, given)| *given && !has_use(field)) {
            Some((field, _)) => Err(Error::UnusedField { kind: self.kind, field }),
            None => Ok(()),
        }
    }

    /// Checks k and r against the limits of a code.
    pub(crate) fn check_sizes(
        &self,
        k: RangeInclusive<usize>,
        r: RangeInclusive<usize>,
    ) -> Result<(), Error> {
        let kind = self.kind;
        if !k.contains(&self.k) {
            return Err(Error::Queries { kind, k: self.k, min: *k.start(), max: *k.end() });
        }
        if !r.contains(&self.r) {
            return Err(Error::Parities { kind, k: self.k, r: self.r, min: *r.start(), max: *r.end() });
        }
        Ok(())
    }

    /// Checks and returns the place of each member.
    pub fn places(&self) -> Result<Vec<usize>, Error> {
        let Some(order) = &self.order else { return Ok((0..self.k).collect()) };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted.into_iter().eq(0..self.k) {
            Ok(order.clone())
        } else {
            Err(Error::Order { order: order.clone(), k: self.k })
        }
    }
}
