//! Work that waits in a pool, and the instances that may take it with a token.

use crate::api::{Class, Role};
use crate::rules::stand_in::{holds, takes_stand_ins};
use crate::rules::suits::{is_redundancy, may_begin, may_run};
use crate::state::State;
use crate::state::arena::Key;
use crate::state::extra::Extra;
use crate::state::group::Stage;
use crate::state::instance::Serves;
use crate::state::keys::{InstanceKey, Keys, PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::stand_ins::StandInLine;
use crate::turn::Turn;

/// Jobs of a line that are examined for a reservation: placing looks at least so far.
const FIRST: usize = 16;

/// Whether an instance may run work of a class that waits in a pool, once it gives a token.
pub(crate) fn takes_class(
    state: &State,
    turn: &Turn,
    key: PoolKey,
    instance: InstanceKey,
    class: Class,
) -> bool {
    let of = state.instances.at(instance);
    let Some(serves) = of.serves(key).filter(|serves| of.usable() && of.has_place_for(serves)) else {
        return false;
    };
    match class {
        Class::Query => serves.takes_queries(),
        Class::Late => takes_late_work(state, turn, key, instance),
        Class::Spare => serves.is_kept() && takes_redundancy(state, turn, key, instance),
    }
}

/// Whether an instance may run late work that waits in a pool: a retry, a hedge or a stand-in.
fn takes_late_work(state: &State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    let suits = |extra: &Extra| {
        still_wanted(state, extra).is_some_and(|extra| may_begin(state, turn, key, &extra, instance, true))
    };
    // Jobs behind the first ones are not examined, and may suit.
    pool.urgent.len() > FIRST || pool.urgent.iter().any(suits) || takes_late_stand_in(state, key, instance)
}

fn takes_late_stand_in(state: &State, key: PoolKey, instance: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    let Some(own) = &pool.stand_ins else { return false };
    let is_apart = state.instances.at(instance).serves(key).is_some_and(Serves::is_apart);
    // In an outage instances with the deployed model run none.
    if !is_apart && pool.outage_since.is_some() || !takes_stand_ins(state, key, instance, StandInLine::Late) {
        return false;
    }
    let mut alive = own.late.iter().filter(|query| state.queries.contains(**query));
    own.late.len() > FIRST || alive.any(|query| !holds(state, instance, *query))
}

/// The retries, hedges and late stand-ins that wait in a pool. Placing drops answered ones of a long line.
pub(crate) fn late_jobs(state: &State, pool: &Pool) -> usize {
    let urgent = match pool.urgent.len() {
        count if count > FIRST => count,
        _ => pool.urgent.iter().filter(|extra| still_wanted(state, extra).is_some()).count(),
    };
    let alive = |query: &&QueryKey| state.queries.contains(**query);
    let stand_ins = pool.stand_ins.as_ref().map_or(0, |own| match own.late.len() {
        count if count > FIRST => count,
        _ => own.late.iter().filter(alive).count(),
    });
    urgent + stand_ins
}

fn takes_redundancy(state: &State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let mut wanted = redundancy(state, state.pools.at(key));
    wanted.any(|extra| may_begin(state, turn, key, &extra, instance, true))
}

/// The first parities and backups that wait in a pool and are still of use.
pub(crate) fn redundancy(state: &State, pool: &Pool) -> impl Iterator<Item = Extra> {
    let first = pool.spare.iter().take(FIRST).filter(|extra| extra.redundant());
    first.filter_map(|extra| still_wanted(state, extra))
}

/// Whether an instance may run late work that waits in a pool and has nothing else to wait for: a retry among the first
/// jobs, or a stand-in. Queries that were never tried, and copies of queries that run, may wait for a faster instance.
pub(crate) fn suits_late_work(state: &State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    let suits = |extra: &Extra| {
        still_wanted(state, extra).is_some_and(|extra| {
            !is_redundancy(state, turn, &extra) && may_run(state, turn, key, &extra, instance, true)
        })
    };
    pool.urgent.iter().take(FIRST).any(suits) || takes_late_stand_in(state, key, instance)
}

/// An extra job without the queries that are answered or get no further jobs; `None` if it is of no use by now.
pub(crate) fn still_wanted(state: &State, extra: &Extra) -> Option<Extra> {
    let lives = |query: &QueryKey| state.queries.get(*query).is_some_and(|of| !of.withheld);
    let rows: Keys = extra.rows.iter().copied().filter(lives).collect();
    let is_wanted = match extra.role {
        Role::Parity(group, _) => {
            state.groups.get(Key::from(group)).is_some_and(|group| group.stage == Stage::Coded)
        }
        _ => !rows.is_empty(),
    };
    let Extra { role, avoid, purpose, .. } = *extra;
    is_wanted.then_some(Extra { role, rows, avoid, purpose })
}
