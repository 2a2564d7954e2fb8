//! Who pays for a job with a share of the instances' time, and what is said of shares.
//!
//! What a query asks for is charged to its share, and so is all redundancy that is made for it. A coding group may have members
//! of several shares: whoever opened it pays for its parities, which comes to as much for each as it has queries.
//!
//! Without shares that are set up, priorities of queries go before shares, which are the models' own. With them a priority
//! counts within its share: tenants who may say how urgent they are must not be able to starve others.

use parm_shares::{Account, Work};

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::instance::Instance;
use super::pool::Pool;
use super::queue::LaneId;
use super::{PoolId, Role, ShareId, Time};

/// Whose share a job is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payer {
    /// A share that is set up.
    Share(ShareId),
    /// A pool's own.
    Model(PoolId),
}

/// A job that is wished for at an instance which others use as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    /// The pool of its queries.
    pub pool: PoolId,
    /// Who pays.
    pub payer: Payer,
}

/// Where the first query of a lane stands among all that wait: reserved, priority, whether a token came for others, share, priority
/// within it, arrival. The least is served next.
pub(super) type Rank = (bool, u8, bool, parm_shares::Due, u8, Time);

impl Dispatcher {
    /// How shares stand: those that are set up, and pools' own.
    pub fn shares(&self) -> impl Iterator<Item = (Payer, &Account)> {
        self.book.accounts().map(|(payer, account)| (*payer, account))
    }

    /// The lane of a pool that comes next, of those that are ready, and where it stands.
    pub(super) fn next_lane(&self, key: Key<Pool>) -> Option<(Rank, LaneId)> {
        let pool = &self.pools[key];
        pool.queue.ready(self.now, &pool.in_force.batch, |lane, arrived| {
            let turn = self.book.turn(&lane.payer, Work::Query);
            // Where workers order everybody's jobs they know best what of what is reserved is in use.
            let waits_its_turn = turn.waits_its_turn || (self.givers > 0 && !self.for_reserved);
            let first = if self.settings.shares.is_empty() { lane.priority } else { 0 };
            let others = self.met.is_some_and(|met| met != (key, lane.payer));
            (waits_its_turn, first, others, turn.due, lane.priority, arrived)
        })
    }

    /// Whether a query waits that an instance has to take before all else, as its share has instances reserved.
    pub(super) fn reserved_waits(&self, key: Key<Instance>) -> bool {
        let takes = self.instances[key].serves.iter().filter(|serves| serves.takes_queries());
        let mut lanes = takes.filter_map(|serves| self.next_lane(serves.pool));
        self.book.unused() > 0 && lanes.any(|((waits_its_turn, ..), _)| !waits_its_turn)
    }

    /// Whether redundancy of a pool may take an instance without taking one that a share has reserved: others stay free, or a
    /// query would take it.
    pub(super) fn leaves_reserved(&self, key: Key<Pool>) -> bool {
        let unused = self.book.unused();
        // Where instances give tokens those say it.
        unused == 0 || self.givers > 0 || self.more_idle_than(key, unused) || self.next_lane(key).is_some()
    }
}

/// What a job of this role is to its share.
pub(super) fn work(role: Role) -> Work {
    if role == Role::Deployed { Work::Query } else { Work::Redundancy }
}
