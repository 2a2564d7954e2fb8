//! Which losses a code can make good: pure set arithmetic, for whoever must decide before any byte has come.

use serde::{Deserialize, Serialize};

use crate::Set;

/// What a code needs to make a lost prediction good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Any k of the k + r results: as many parity outputs as predictions are missing.
    AsManyAsMissing,
    /// One parity output, whichever; no prediction.
    OneParity,
    /// The copy of the very query that was lost.
    OwnCopy,
    /// This many outputs; the code sends no query as it is, so every answer is decoded.
    AnyOutputs(usize),
}

/// A code's recovery rule. Small enough to be copied wherever loss patterns are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recovery {
    /// Queries per group.
    pub k: usize,
    /// Coded queries per group: what `encode` writes. More than r for `replicate` (k r) and for codes that are not
    /// systematic (k + r).
    pub parities: usize,
    /// What a reconstruction takes.
    pub needs: Needs,
}

/// What has come of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Slots that hold a query; the others are blank.
    pub members: Set,
    /// Slots whose predictions are in.
    pub predictions: Set,
    /// Parities whose outputs are in.
    pub parities: Set,
}

impl Recovery {
    /// Whether members are sent as they are, so that predictions are exact while nothing is lost.
    pub fn is_systematic(self) -> bool {
        !matches!(self.needs, Needs::AnyOutputs(_))
    }

    /// Whether a reconstruction reads the predictions of the other members.
    pub fn reads_predictions(self) -> bool {
        self.needs == Needs::AsManyAsMissing
    }

    /// Parity outputs with which a complete group tells a wrong prediction from right ones; `None` if nothing does.
    ///
    /// Where the members' predictions take part in every reconstruction, a second parity has to say whose fault a
    /// disagreement is.
    pub fn parities_to_compare(self) -> Option<usize> {
        match self.needs {
            Needs::OneParity | Needs::OwnCopy => Some(1),
            Needs::AsManyAsMissing => Some(2),
            Needs::AnyOutputs(_) => None,
        }
        .filter(|wanted| *wanted <= self.parities)
    }

    /// Whether the predictions of all of `lost` follow from what has arrived. A slot whose own prediction is in may
    /// be asked for too: it is then judged (and decoded) as if that prediction were not there.
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
            Needs::OwnCopy => lost.iter().all(|slot| parities.iter().any(|parity| parity % self.k == slot)),
            Needs::AnyOutputs(count) => members == slots && parities.len() >= count,
        }
    }
}
