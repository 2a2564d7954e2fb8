//! Splits rows into those to learn from and held-out ones.

use parm_random::Random;

use super::Set;

/// Row numbers.
pub(crate) struct Split {
    train: Vec<usize>,
    held_out: Vec<usize>,
}

impl Split {
    /// Holds out `wanted` rows of `rows`, at most a sixth.
    pub(crate) fn random(rows: usize, wanted: usize, seed: u64) -> Self {
        let mut train: Vec<usize> = (0..rows).collect();
        Random::named(seed, "rows held out").shuffle(&mut train);
        let held_out = train.split_off(rows - wanted.min(rows / 6));
        Self { train, held_out }
    }

    /// The rows of `set` to learn from, and the held-out ones.
    pub(crate) fn of(&self, set: &Set) -> (Set, Set) {
        (set.select(&self.train), set.select(&self.held_out))
    }
}
