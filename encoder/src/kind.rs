//! The codes, and the properties that the name of a code alone determines.
//!
//! Callers query the properties of a code (whether it needs a bundle, adds queries up, and so on) here and in
//! [`CodeSpec`](crate::CodeSpec), and never compare names. A new code is then served, evaluated and trained as its properties allow.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

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

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] =
        [Kind::Sum, Kind::Weighted, Kind::Tiles, Kind::Slots, Kind::Mds, Kind::Berrut, Kind::Learned];

    /// Its name, as in settings, bundles and flags.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sum => "sum",
            Kind::Weighted => "weighted",
            Kind::Tiles => "tiles",
            Kind::Slots => "slots",
            Kind::Mds => "mds",
            Kind::Berrut => "berrut",
            Kind::Learned => "learned",
        }
    }

    /// Whether each parity has a model of its own, trained for the deployed one.
    pub fn has_parity_models(self) -> bool {
        matches!(self, Kind::Sum | Kind::Weighted | Kind::Tiles | Kind::Slots)
    }

    /// Whether its encoder and decoder are models, trained for the deployed one, which serves the parities.
    pub fn runs_nets(self) -> bool {
        self == Kind::Learned
    }

    /// Whether the deployed model must be affine: it serves the parities without training.
    pub fn needs_affine_model(self) -> bool {
        self == Kind::Mds
    }

    /// Whether it uses trained models that a bundle must name.
    pub fn needs_bundle(self) -> bool {
        self.has_parity_models() || self.runs_nets()
    }

    /// Whether it computes with queries, which must then be floats.
    pub fn is_arithmetic(self) -> bool {
        !self.is_side_by_side()
    }

    /// Whether the queries of a group are concatenated in a parity query, on the channel axis.
    pub fn is_side_by_side(self) -> bool {
        self == Kind::Slots
    }

    /// Whether a spec can choose the output of its parity models.
    pub fn chooses_head(self) -> bool {
        matches!(self, Kind::Tiles | Kind::Slots)
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
