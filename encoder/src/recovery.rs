//! Decides which losses a code can recover, by set arithmetic alone: no output has to be there yet.

use std::fmt;

use serde::{Deserialize, Serialize};

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

/// A set of slots or parities, numbers below 64, in one machine word: the hot path copies and compares loss patterns.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Set(u64);

impl Set {
    /// The empty set.
    pub const EMPTY: Set = Set(0);

    /// `0..n`, for n of at most 64.
    pub fn first(n: usize) -> Set {
        Set(if n >= 64 { u64::MAX } else { (1 << n) - 1 })
    }

    /// The positions of the items that are `Some`.
    pub fn present<T>(items: &[Option<T>]) -> Set {
        items.iter().enumerate().filter(|(_, item)| item.is_some()).map(|(index, _)| index).collect()
    }

    /// The set with `index` added.
    #[must_use]
    pub fn with(self, index: usize) -> Set {
        debug_assert!(index < 64);
        Set(self.0 | 1 << index)
    }

    /// Whether the set contains `index`.
    pub fn contains(self, index: usize) -> bool {
        index < 64 && self.0 >> index & 1 == 1
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union.
    #[must_use]
    pub fn union(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// The intersection.
    #[must_use]
    pub fn both(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// The difference.
    #[must_use]
    pub fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// Whether this is a subset of `other`.
    pub fn is_within(self, other: Set) -> bool {
        self.without(other).is_empty()
    }

    /// The elements, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let index = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (index < 64).then_some(index)
        })
    }
}

impl FromIterator<usize> for Set {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Set {
        numbers.into_iter().fold(Set::EMPTY, Set::with)
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
