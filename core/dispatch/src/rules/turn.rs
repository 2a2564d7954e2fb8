//! Turns of weighted fair queueing: which lane is served next, and which account pays for a job.
//!
//! A query is charged to its payer, and so is all redundancy for it. A coding group may have members of several
//! payers; the payer of the first member pays for its parities, which balances out over many groups.
//!
//! Without configured shares, priorities of queries go before the models' own shares. With them a priority counts
//! within its share, because a tenant that sets priorities must not starve others.

use parm_shares::Work;

use crate::api::{Payer, Role, Time};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::keys::{InstanceKey, Keys, PoolKey};
use crate::state::queue::LaneId;
use crate::turn::Turn;

/// The rank of a lane: reserved, priority, token for others, share, priority within the share, arrival. The least
/// is served next.
pub(crate) type Rank = (bool, u8, bool, parm_shares::Due, u8, Time);

/// The next lane of a pool among the ready ones, with its rank.
pub(crate) fn next_lane(state: &State, turn: &Turn, key: PoolKey) -> Option<(Rank, LaneId)> {
    let pool = state.pools.at(key);
    pool.queue.ready(turn.now, pool.readiness, |lane, arrived| {
        let account = state.book.turn(&lane.payer, Work::Query);
        // Workers that several frontends share know best which reserved instances are in use.
        let waits_its_turn = account.waits_its_turn || (state.shared_givers > 0 && !turn.for_reserved);
        let first = if state.settings.shares.is_empty() { lane.priority } else { 0 };
        let others = turn.met.is_some_and(|met| met != (key, lane.payer));
        (waits_its_turn, first, others, account.due, lane.priority, arrived)
    })
}

/// Whether a query waits that an instance must take first, because its share has unused reserved instances.
pub(crate) fn reserved_waits(state: &State, turn: &Turn, key: InstanceKey) -> bool {
    let takes = state.instances.at(key).serves.iter().filter(|serves| serves.takes_queries());
    let mut lanes = takes.filter_map(|serves| next_lane(state, turn, serves.pool));
    state.book.unused() > 0 && lanes.any(|((waits_its_turn, ..), _)| !waits_its_turn)
}

/// Whether redundancy of a pool may use an instance: other idle ones are left for reservations, or a query would
/// use it.
pub(crate) fn leaves_reserved(state: &State, turn: &Turn, key: PoolKey) -> bool {
    let unused = state.book.unused();
    // With tokens, the tokens show reservations.
    unused == 0
        || state.shared_givers > 0
        || more_idle_than(state, key, unused)
        || next_lane(state, turn, key).is_some()
}

/// Whether more than this many instances have nothing to do, including idle homes of other frontends.
fn more_idle_than(state: &State, key: PoolKey, count: u32) -> bool {
    let idle = &state.pools.at(key).idle;
    let free = |index: &usize| {
        let instance = state.instances.key_at(*index).map(|key| state.instances.at(key));
        instance.is_some_and(|of| !of.elsewhere.home && of.jobs.is_empty() && of.elsewhere.jobs == 0)
    };
    let abroad = if state.abroad == 0 { 0 } else { idle.partial().filter(free).count() as u32 };
    abroad > count || idle.more_than(count - abroad)
}

/// The account that pays for a job.
pub(crate) fn payer_of(state: &State, pool: PoolKey, role: Role, rows: &Keys) -> Payer {
    let of_group = || match role {
        Role::Parity(group, _) => state.groups.get(Key::from(group)).map(|group| group.payer),
        _ => None,
    };
    let first = rows.first().and_then(|query| state.queries.get(*query)).map(|query| query.payer);
    first.or_else(of_group).unwrap_or(Payer::Model(state.pools.at(pool).id))
}

/// The kind of work of a role.
pub(crate) fn work(role: Role) -> Work {
    if role == Role::Deployed { Work::Query } else { Work::Redundancy }
}
