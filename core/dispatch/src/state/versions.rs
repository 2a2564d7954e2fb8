//! Versions of a model: pools whose reservations a worker does not tell apart, and whose approximate answers count
//! together.
//!
//! A worker knows the work of a reservation by the name of its model and by its configured share. So those of two
//! versions are one there, and a withdrawal ends both.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::api::{Payer, PoolId, ShareId, Wanted};

/// The versions of all models.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// The pool of a model's first version, by the pools of later ones.
    first: BTreeMap<PoolId, PoolId>,
}

impl Versions {
    /// Adds a version of another pool's model.
    pub(crate) fn add(&mut self, pool: PoolId, predecessor: PoolId) {
        let first = self.first_of(predecessor);
        self.first.insert(pool, first);
    }

    pub(crate) fn remove(&mut self, pool: PoolId) {
        self.first.remove(&pool);
    }

    /// Whether reservations of two pools are one at a worker.
    pub(crate) fn are_one(&self, one: Wanted, other: Wanted) -> bool {
        let share = |payer| -> Option<ShareId> {
            match payer {
                Payer::Share(share) => Some(share),
                Payer::Model(_) => None,
            }
        };
        one.pool != other.pool
            && share(one.payer) == share(other.payer)
            && self.first_of(one.pool) == self.first_of(other.pool)
    }

    /// The other versions of a pool's model, which may be gone.
    pub(crate) fn others(&self, pool: PoolId) -> SmallVec<[PoolId; 2]> {
        if self.first.is_empty() {
            return SmallVec::new();
        }
        let first = self.first_of(pool);
        let later = self.first.iter().filter(|(_, of)| **of == first).map(|(later, _)| *later);
        [first].into_iter().chain(later).filter(|other| *other != pool).collect()
    }

    fn first_of(&self, pool: PoolId) -> PoolId {
        self.first.get(&pool).copied().unwrap_or(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pool: u32) -> Wanted {
        Wanted { pool: PoolId(pool), payer: Payer::Model(PoolId(pool)) }
    }

    fn of_share(pool: u32, share: u32) -> Wanted {
        Wanted { pool: PoolId(pool), payer: Payer::Share(ShareId(share)) }
    }

    #[test]
    fn versions_are_one_unless_their_shares_differ() {
        let mut versions = Versions::default();
        versions.add(PoolId(2), PoolId(1));
        versions.add(PoolId(3), PoolId(2));
        assert!(versions.are_one(own(3), own(1)) && versions.are_one(own(2), own(3)));
        assert!(!versions.are_one(own(4), own(1)) && !versions.are_one(own(1), own(1)));
        assert!(versions.are_one(of_share(1, 7), of_share(3, 7)));
        assert!(!versions.are_one(of_share(1, 7), of_share(3, 8)));
        assert!(!versions.are_one(of_share(1, 7), own(3)));
        assert_eq!(versions.others(PoolId(2))[..], [PoolId(1), PoolId(3)]);
        assert_eq!(versions.others(PoolId(4))[..], []);
        versions.remove(PoolId(3));
        assert_eq!(versions.others(PoolId(1))[..], [PoolId(2)]);
        assert!(!versions.are_one(own(3), own(1)));
    }
}
