//! A set of slots or parities in one machine word: the hot path copies and compares loss patterns.

use std::fmt;

/// A set of numbers below 64.
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
