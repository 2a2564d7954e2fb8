//! Sets of nodes by their positions.

/// A set of small numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    /// An empty set for numbers below `size`.
    pub(super) fn of(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// Adds all numbers of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    /// The numbers in this set and in one other set, but not in a third.
    pub(super) fn between<'a>(
        &'a self,
        within: &'a Self,
        without: &'a Self,
    ) -> impl Iterator<Item = usize> + 'a {
        let words = self.0.iter().zip(&within.0).zip(&without.0).map(|((a, b), c)| a & b & !c);
        words.enumerate().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}
