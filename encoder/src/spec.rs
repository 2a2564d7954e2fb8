//! What a code is, in the words that a bundle stores; building it checks every number.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{Code, Error, Kind, Recovery, linear};

/// What a parity model puts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// One output: the weighted sum of the members' outputs, from which those that are in are subtracted.
    Sum,
    /// k outputs, one per slot: decoding reads one.
    Slots,
}

/// Where an input's channels (or features) are.
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

/// A code and its parameters. Whatever is left out has a default; whatever the kind does not use must be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeSpec {
    /// Which code.
    pub kind: Kind,
    /// Queries per group.
    pub k: usize,
    /// Parities per group (`replicate`: copies of each query). Default 1.
    #[serde(default = "one")]
    pub r: usize,
    /// `tiles` and `slots`: what the parity models put out. Default `slots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// r rows of k weights, for `weighted` and for the head `sum`. Default: well conditioned ones
    /// ([`coefficients::design`](crate::coefficients::design)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coefficients: Option<Vec<Vec<f32>>>,
    /// `tiles` and `slots`: the place of each member, a permutation of 0..k. Default 0, 1, 2...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<usize>>,
    /// `tiles`: the grid. Default: the squarest one that holds k, wider than high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<Grid>,
    /// `tiles` and `slots`: where the channels are. Default `channels_first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// `spline`: the smoothing weight, for nodes on 0..1. Default 1e-7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoothing: Option<f64>,
}

fn one() -> usize {
    1
}

impl CodeSpec {
    /// A code with the default parameters.
    pub fn new(kind: Kind, k: usize, r: usize) -> Self {
        Self {
            kind,
            k,
            r,
            head: None,
            coefficients: None,
            order: None,
            grid: None,
            layout: None,
            smoothing: None,
        }
    }

    /// The code, or what is wrong with these parameters. `learned` is built by [`Learned::new`](crate::Learned::new).
    pub fn build(&self) -> Result<Box<dyn Code>, Error> {
        self.check_fields()?;
        (self.kind.nature().build)(self)
    }

    /// Which losses it makes good.
    pub fn recovery(&self) -> Recovery {
        let nature = self.kind.nature();
        Recovery { k: self.k, parities: (nature.parities)(self), needs: (nature.needs)(self) }
    }

    /// What its parity models put out; `None` where there are none, as the deployed model serves the parities.
    pub fn parity_head(&self) -> Option<Head> {
        let chosen = if self.kind.chooses_head() { self.head.unwrap_or(Head::Slots) } else { Head::Sum };
        self.kind.has_parity_models().then_some(chosen)
    }

    /// The weights of the members' predictions in what the head `sum` puts out: r rows of k.
    pub fn weights(&self) -> Result<Vec<Vec<f32>>, Error> {
        let weights = linear::coefficients(self)?.to_f32();
        Ok(weights.chunks_exact(self.k).map(<[f32]>::to_vec).collect())
    }

    /// Length of a parity model's output over that of a prediction: k for slot heads, else 1.
    pub fn output_scale(&self) -> usize {
        if self.parity_head() == Some(Head::Slots) { self.k } else { 1 }
    }

    /// Elements of a parity query over those of a query: k where they stand side by side, else 1.
    pub fn query_scale(&self) -> usize {
        if self.kind.is_side_by_side() { self.k } else { 1 }
    }

    /// A field that the kind does not use would be silently ignored: refuse it.
    pub(crate) fn check_fields(&self) -> Result<(), Error> {
        let used = self.kind.nature().fields;
        let given = [
            ("head", self.head.is_some()),
            ("coefficients", self.coefficients.is_some()),
            ("order", self.order.is_some()),
            ("grid", self.grid.is_some()),
            ("layout", self.layout.is_some()),
            ("smoothing", self.smoothing.is_some()),
        ];
        let has_use = |field: &str| {
            used.contains(&field) && (field != "coefficients" || self.parity_head() == Some(Head::Sum))
        };
        match given.into_iter().find(|(field, given)| *given && !has_use(field)) {
            Some((field, _)) => Err(Error::UnusedField { kind: self.kind, field }),
            None => Ok(()),
        }
    }

    /// Checks k and r against what a code can do.
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

    /// The place of each member, checked.
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
