//! What a code is, in the words that a bundle stores; building it checks every number.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::berrut::Berrut;
use crate::mds::Mds;
use crate::replicate::Replicate;
use crate::slots::Slots;
use crate::spline::Spline;
use crate::sum::Sum;
use crate::tiles::Tiles;
use crate::weighted::Weighted;
use crate::{Code, Error};

/// The codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Queries are added up; one parity.
    Sum,
    /// Several differently weighted sums.
    Weighted,
    /// Images are shrunk and tiled into one.
    Tiles,
    /// Queries stand side by side on the channel axis.
    Slots,
    /// Every query is sent again.
    Replicate,
    /// Exact for affine models, which compute their own parities.
    Mds,
    /// Rational interpolation; no training, not systematic.
    Berrut,
    /// Smoothing splines; no training, not systematic.
    Spline,
    /// Encoder and decoder are models.
    Learned,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Sum => "sum",
            Kind::Weighted => "weighted",
            Kind::Tiles => "tiles",
            Kind::Slots => "slots",
            Kind::Replicate => "replicate",
            Kind::Mds => "mds",
            Kind::Berrut => "berrut",
            Kind::Spline => "spline",
            Kind::Learned => "learned",
        })
    }
}

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
        Ok(match self.kind {
            Kind::Sum => Box::new(Sum::new(self)?),
            Kind::Weighted => Box::new(Weighted::new(self)?),
            Kind::Tiles => Box::new(Tiles::new(self)?),
            Kind::Slots => Box::new(Slots::new(self)?),
            Kind::Replicate => Box::new(Replicate::new(self)?),
            Kind::Mds => Box::new(Mds::new(self)?),
            Kind::Berrut => Box::new(Berrut::new(self)?),
            Kind::Spline => Box::new(Spline::new(self)?),
            Kind::Learned => return Err(Error::NeedsNets),
        })
    }

    /// A field that the kind does not use would be silently ignored: refuse it.
    pub(crate) fn check_fields(&self) -> Result<(), Error> {
        let placed = matches!(self.kind, Kind::Tiles | Kind::Slots);
        let sums = self.kind == Kind::Weighted || (placed && self.head == Some(Head::Sum));
        let unused = [
            ("head", self.head.is_some() && !placed),
            ("coefficients", self.coefficients.is_some() && !sums),
            ("order", self.order.is_some() && !placed),
            ("grid", self.grid.is_some() && self.kind != Kind::Tiles),
            ("layout", self.layout.is_some() && !placed),
            ("smoothing", self.smoothing.is_some() && self.kind != Kind::Spline),
        ];
        match unused.into_iter().find(|(_, unused)| *unused) {
            Some((field, _)) => Err(Error::UnusedField { kind: self.kind, field }),
            None => Ok(()),
        }
    }

    /// Checks k and r against what a code can do.
    pub(crate) fn check_sizes(&self, k: (usize, usize), r: (usize, usize)) -> Result<(), Error> {
        let kind = self.kind;
        if !(k.0..=k.1).contains(&self.k) {
            return Err(Error::Queries { kind, k: self.k, min: k.0, max: k.1 });
        }
        if !(r.0..=r.1).contains(&self.r) {
            return Err(Error::Parities { kind, k: self.k, r: self.r, min: r.0, max: r.1 });
        }
        Ok(())
    }

    /// The place of each member, checked.
    pub(crate) fn places(&self) -> Result<Vec<usize>, Error> {
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
