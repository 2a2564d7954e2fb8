//! The table of codes: the properties of each code that its name alone determines.
//!
//! Each code's file defines its [`Nature`], and the table here has a row for each. Callers query the properties of a
//! code (whether it needs a bundle, adds queries up, and so on) here and in [`CodeSpec`], and never compare names. A new
//! code is then served, evaluated and trained as its nature allows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Code, CodeSpec, Error, Needs, berrut, learned, mds, slots, sum, tiles, weighted};

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
    /// Queries are concatenated on the channel axis.
    Slots,
    /// Exact for affine models, which compute their own parities.
    Mds,
    /// Rational interpolation; no training, not systematic.
    Berrut,
    /// Encoder and decoder are models.
    Learned,
}

/// A row for each code, in the order of [`Kind`].
const TABLE: [(Kind, Nature); 7] = [
    (Kind::Sum, sum::NATURE),
    (Kind::Weighted, weighted::NATURE),
    (Kind::Tiles, tiles::NATURE),
    (Kind::Slots, slots::NATURE),
    (Kind::Mds, mds::NATURE),
    (Kind::Berrut, berrut::NATURE),
    (Kind::Learned, learned::NATURE),
];

/// The properties of a code that do not depend on its parameters.
pub(crate) struct Nature {
    /// Its name in settings, bundles and flags.
    pub(crate) name: &'static str,
    /// The models that it requires.
    pub(crate) requires: Requirement,
    /// The way in which it combines queries.
    pub(crate) mixing: Mixing,
    /// The optional fields of a spec that it reads, by name.
    pub(crate) fields: &'static [&'static str],
    /// Coded queries of a group with these parameters.
    pub(crate) parities: fn(&CodeSpec) -> usize,
    /// The outputs that a reconstruction requires.
    pub(crate) needs: fn(&CodeSpec) -> Needs,
    /// Checks every parameter.
    pub(crate) build: fn(&CodeSpec) -> Result<Box<dyn Code>, Error>,
}

/// The models that a code requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// A model for each parity, trained for the deployed one.
    ParityModels,
    /// Encoder and decoder networks, trained for the deployed model, which serves the parities.
    Nets,
    /// A deployed model that is affine: it serves the parities.
    AffineModel,
    /// None: any deployed model serves the parities.
    Nothing,
}

/// The way in which a code combines queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mixing {
    /// Computes weighted sums, which requires floats.
    AddsUp,
    /// Copies whole queries next to one another into one parity query.
    SideBySide,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; TABLE.len()] = {
        let mut all = [Kind::Sum; TABLE.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = TABLE[at].0;
            assert!(
                all[at] as usize == at,
                "table of codes: a row is not at its kind's position: sort the rows"
            );
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

    /// The models that it requires.
    pub fn requires(self) -> Requirement {
        self.nature().requires
    }

    /// Whether each parity has its own model, in addition to the deployed one.
    pub fn has_parity_models(self) -> bool {
        self.requires() == Requirement::ParityModels
    }

    /// Whether its encoder and decoder are models.
    pub fn runs_nets(self) -> bool {
        self.requires() == Requirement::Nets
    }

    /// Whether it uses trained models that a bundle must name.
    pub fn needs_bundle(self) -> bool {
        self.has_parity_models() || self.runs_nets()
    }

    /// Whether it computes with queries, which must then be floats.
    pub fn is_arithmetic(self) -> bool {
        self.nature().mixing == Mixing::AddsUp
    }

    /// Whether the queries of a group are concatenated in a parity query, on the channel axis.
    pub fn is_side_by_side(self) -> bool {
        self.nature().mixing == Mixing::SideBySide
    }

    /// Whether a spec can choose the output of its parity models.
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
