//! Decides which losses a code can recover, by set arithmetic alone: no output has to be there yet.

use serde::{Deserialize, Serialize};

use crate::Set;

/// The outputs that a code requires to reconstruct a lost prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Any k of the k + r results: as many parity outputs as predictions are missing.
    AsManyAsMissing,
    /// Any one parity output; no prediction.
    OneParity,
    /// This many outputs. The code sends no query unchanged, so every answer is decoded.
    AnyOutputs(usize),
}

/// A code's recovery rule. Small enough to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recovery {
    /// Queries per group.
    pub k: usize,
    /// Coded queries per group that `encode` writes: r, or k + r for codes that are not systematic.
    pub parities: usize,
    /// The outputs that a reconstruction requires.
    pub needs: Needs,
}

/// The outputs of a group that have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Slots that hold a query; the others are blank.
    pub members: Set,
    /// Slots whose predictions have arrived.
    pub predictions: Set,
    /// Parities whose outputs have arrived.
    pub parities: Set,
}

impl Recovery {
    /// Whether queries are sent unchanged, so that predictions are exact while nothing is lost.
    pub fn is_systematic(self) -> bool {
        !matches!(self.needs, Needs::AnyOutputs(_))
    }

    /// Whether a reconstruction reads the predictions of the other members.
    pub fn reads_predictions(self) -> bool {
        self.needs == Needs::AsManyAsMissing
    }

    /// Parity outputs that a complete group needs to identify a wrong prediction; `None` if it cannot.
    ///
    /// A second parity is needed if every reconstruction reads the members' predictions: with one, each of them could
    /// be the cause of a disagreement.
    pub fn parities_to_compare(self) -> Option<usize> {
        match self.needs {
            Needs::OneParity => Some(1),
            Needs::AsManyAsMissing => Some(2),
            Needs::AnyOutputs(_) => None,
        }
        .filter(|wanted| *wanted <= self.parities)
    }

    /// Whether the predictions of all slots in `lost` can be reconstructed. A slot whose own prediction has arrived
    /// may be among them; that prediction is then ignored, as in decoding.
    pub fn can_recover(self, arrived: Arrived, lost: Set) -> bool {
        let Arrived { members, predictions, parities } = arrived;
        let slots = Set::first(self.k);
        let parities = parities.both(Set::first(self.parities));
        if lost.is_empty() || !lost.is_within(members.both(slots)) {
            return false;
        }
        match self.needs {
            Needs::AsManyAsMissing => members.without(predictions).union(lost).len() <= parities.len(),
            Needs::OneParity => !parities.is_empty(),
            Needs::AnyOutputs(count) => members == slots && parities.len() >= count,
        }
    }
}
