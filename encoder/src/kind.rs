//! The table of codes: what everybody may know of one by its name alone, before it is built.
//!
//! A code's file holds its [`Nature`]; the table here has a row for each. Whoever wants to know what follows from the choice
//! of a code (does it need a bundle, does it add queries up, what do its parity models put out) asks here and in
//! [`CodeSpec`], and names no code himself: a new code is then served, evaluated and trained as its nature allows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    Code, CodeSpec, Error, Needs, berrut, learned, mds, replicate, slots, spline, sum, tiles, weighted,
};

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

/// A row for each code, in the order of [`Kind`].
const TABLE: [(Kind, Nature); 9] = [
    (Kind::Sum, sum::NATURE),
    (Kind::Weighted, weighted::NATURE),
    (Kind::Tiles, tiles::NATURE),
    (Kind::Slots, slots::NATURE),
    (Kind::Replicate, replicate::NATURE),
    (Kind::Mds, mds::NATURE),
    (Kind::Berrut, berrut::NATURE),
    (Kind::Spline, spline::NATURE),
    (Kind::Learned, learned::NATURE),
];

/// What a code is, whatever its parameters.
pub(crate) struct Nature {
    /// Its name in settings, bundles and flags.
    pub(crate) name: &'static str,
    /// What must be there before it can be used.
    pub(crate) requires: Requirement,
    /// What it does with queries.
    pub(crate) mixing: Mixing,
    /// The optional fields of a spec that it reads, by name.
    pub(crate) fields: &'static [&'static str],
    /// Coded queries of a group with these parameters.
    pub(crate) parities: fn(&CodeSpec) -> usize,
    /// What a reconstruction takes.
    pub(crate) needs: fn(&CodeSpec) -> Needs,
    /// Checks every parameter.
    pub(crate) build: fn(&CodeSpec) -> Result<Box<dyn Code>, Error>,
}

/// What must be there before a code can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// A model for each parity, trained for the deployed one.
    ParityModels,
    /// Encoder and decoder networks, trained for the deployed model, which serves the parities.
    Nets,
    /// A deployed model that is affine: it serves the parities.
    AffineModel,
    /// Nothing: the deployed model, whatever it is, serves the parities.
    Nothing,
}

/// What a code does with queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mixing {
    /// Arithmetic, which wants floats.
    AddsUp,
    /// Arithmetic on neighbours of a curve, which is smoother where neighbours are alike.
    DrawsCurve,
    /// Moves them, each whole, and next to one another in one parity query.
    SideBySide,
    /// Moves them, each into a coded query of its own.
    Copies,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; TABLE.len()] = {
        let mut all = [Kind::Sum; TABLE.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = TABLE[at].0;
            assert!(all[at] as usize == at, "the rows are in the order of the kinds");
            at += 1;
        }
        all
    };

    pub(crate) fn nature(self) -> &'static Nature {
        const ROWS: &[(Kind, Nature)] = &TABLE;
        &ROWS[self as usize].1
    }

    /// Its name, as in settings and bundles.
    pub fn name(self) -> &'static str {
        self.nature().name
    }

    /// What must be there before it can be used.
    pub fn requires(self) -> Requirement {
        self.nature().requires
    }

    /// Whether each parity has a model of its own, beside the deployed one.
    pub fn has_parity_models(self) -> bool {
        self.requires() == Requirement::ParityModels
    }

    /// Whether its encoder and decoder are models.
    pub fn runs_nets(self) -> bool {
        self.requires() == Requirement::Nets
    }

    /// Whether something was trained for it, that a bundle has to name.
    pub fn needs_bundle(self) -> bool {
        self.has_parity_models() || self.runs_nets()
    }

    /// Whether it does arithmetic on queries, so that they have to be floats.
    pub fn is_arithmetic(self) -> bool {
        matches!(self.nature().mixing, Mixing::AddsUp | Mixing::DrawsCurve)
    }

    /// Whether answers are better where neighbours in a group are alike ([`path::nearest`](crate::path::nearest)).
    pub fn draws_curve(self) -> bool {
        self.nature().mixing == Mixing::DrawsCurve
    }

    /// Whether the queries of a group stand side by side in a parity query, on the axis of channels.
    pub fn is_side_by_side(self) -> bool {
        self.nature().mixing == Mixing::SideBySide
    }

    /// Whether a spec chooses what its parity models put out.
    pub fn chooses_head(self) -> bool {
        self.nature().fields.contains(&"head")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        named.ok_or_else(|| Error::UnknownCode { name: text.to_owned() })
    }
}
