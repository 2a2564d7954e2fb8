//! Work that waits in a pool.

use crate::api::{Class, Payer, Time};
use crate::rules::late_work::{late_jobs, redundancy, still_wanted};
use crate::rules::turn::payer_of;
use crate::state::State;
use crate::state::extra::Extra;
use crate::state::keys::{InstanceKey, Keys, PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::state::reservations::ByPayer;
use crate::state::stand_ins::{StandInLine, StandIns};
use crate::turn::Turn;

/// Whether a pool has waiting work that must not wait forever.
pub(crate) fn has_pressing_work(state: &State, key: PoolKey) -> bool {
    let Some(pool) = state.pools.get(key) else { return false };
    let late = |own: &StandIns| own.late.iter().any(|query| state.queries.contains(*query));
    let urgent = |extra: &Extra| extra.rows.iter().any(|query| state.queries.contains(*query));
    pool.queue.waiting() > 0 || pool.urgent.iter().any(urgent) || pool.stand_ins.as_deref().is_some_and(late)
}

/// Whether any pool of an instance has waiting work.
pub(crate) fn has_work_for(state: &State, key: InstanceKey) -> bool {
    let Some(instance) = state.instances.get(key) else { return false };
    instance.serves.iter().any(|serves| state.pools.at(serves.pool).has_work())
}

/// Queries of a pool that no instance holds.
pub(crate) fn queries_without_instance(state: &State, key: PoolKey) -> Keys {
    let pool = state.pools.at(key);
    let queued = |query: &QueryKey| state.queries.get(*query).is_some_and(|query| query.queued);
    let extras = pool.urgent.iter().flat_map(|extra| extra.rows.iter().copied());
    let unheld = |query: &QueryKey| state.queries.get(*query).is_some_and(|query| query.jobs.is_empty());
    pool.queue.iter().filter(queued).chain(extras.filter(unheld)).collect()
}

/// The time until which a query waits in a pool without instances; `None` if the pool has some.
pub(crate) fn no_instance_at(pool: &Pool, query: &Query) -> Option<Time> {
    let since = pool.deserted_since.or(pool.outage_since)?;
    Some(query.arrived.max(since) + pool.settings.no_instance_grace)
}

/// The arrival of the query that a payer's next token of this class would serve.
pub(crate) fn first_arrival(state: &State, key: PoolKey, payer: Payer, class: Class) -> Option<Time> {
    let pool = state.pools.at(key);
    match class {
        Class::Query => return pool.queue.first_arrival(payer),
        // The worker counts from their reservation.
        Class::Spare => return None,
        Class::Late => {}
    }
    let stand_ins = pool.stand_ins.iter().flat_map(|own| own.line(StandInLine::Late));
    let late = pool.urgent.iter().flat_map(|extra| &extra.rows).chain(stand_ins);
    let own = late.filter_map(|query| state.queries.get(*query)).filter(|query| query.payer == payer);
    own.map(|query| query.arrived).min()
}

/// The waiting late jobs and batches of a pool, by payer. Spare work makes reservations only at instances without other
/// jobs.
pub(crate) fn waiting_jobs(state: &State, turn: &Turn, key: PoolKey) -> ByPayer {
    let (now, mut wanted) = (turn.now, ByPayer::default());
    let pool = state.pools.at(key);
    let size = pool.usual_rows.round() as u32;
    let stand_ins = pool.stand_ins.as_ref().map(|own| own.line(StandInLine::Late));
    let stand_ins = stand_ins.into_iter().flatten();
    let redundant = redundancy(state, pool).filter(|_| pool.kept > 0);
    if state.settings.shares.is_empty() {
        // The pool is the only payer, so counting is enough.
        let payer = Payer::Model(pool.id);
        let ready = pool.queue.ready_lanes(now, pool.readiness).next().is_some();
        let queries = if ready { pool.queue.waiting().div_ceil(size) } else { 0 };
        let late = late_jobs(state, pool) as u32;
        (*wanted.count(payer, Class::Late), *wanted.count(payer, Class::Query)) = (late, queries);
        *wanted.count(payer, Class::Spare) = redundant.count() as u32;
        return wanted;
    }
    for extra in redundant {
        *wanted.count(payer_of(state, key, extra.role, &extra.rows), Class::Spare) += 1;
    }
    // The first query of a job may have left, and a parity has none.
    for extra in pool.urgent.iter().filter_map(|extra| still_wanted(state, extra)) {
        *wanted.count(payer_of(state, key, extra.role, &extra.rows), Class::Late) += 1;
    }
    for query in stand_ins.filter_map(|query| state.queries.get(*query)) {
        *wanted.count(query.payer, Class::Late) += 1;
    }
    for (lane, _, alive) in pool.queue.ready_lanes(now, pool.readiness) {
        *wanted.count(lane.payer, Class::Query) += alive.div_ceil(if lane.alone { 1 } else { size });
    }
    wanted
}
