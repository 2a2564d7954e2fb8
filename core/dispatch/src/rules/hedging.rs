//! Eligibility for another copy: which queries may be hedged or moved.

use crate::state::State;
use crate::state::group::Stage;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{JobKey, PoolKey, QueryKey};
use crate::state::query::Query;

/// Whether a query may get another copy: it has one job, or all its jobs are late or wait at silent instances.
pub(crate) fn may_be_hedged(state: &State, query: QueryKey) -> bool {
    let Some(query) = state.queries.get(query).filter(|query| query.extras == 0) else { return false };
    let pool = state.pools.at(query.pool);
    // A query that breaks instances must not break them all while one of its jobs hangs.
    if !pool.policy.repeats() || query.withheld || query.failures >= pool.settings.max_attempts.get() {
        return false;
    }
    let most = usize::from(pool.settings.max_attempts.get()).max(2);
    match query.jobs.len() {
        0 => false,
        1 => true,
        jobs => jobs < most && query.jobs.iter().all(|job| holds_up(state, *job)),
    }
}

/// The number of usable instances of a pool that do not hold a query.
pub(crate) fn usable_beside_holders(state: &State, pool: PoolKey, query: QueryKey) -> u32 {
    let takes =
        |instance: &&Instance| instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries);
    let jobs = state.queries.at(query).jobs.iter().filter_map(|job| state.jobs.get(*job));
    let holders = jobs.filter_map(|job| state.instances.get(job.instance)).filter(takes).count();
    state.pools.at(pool).usable.saturating_sub(holders as u32)
}

/// Whether a query's reconstruction can be computed or is being computed.
pub(crate) fn has_reconstruction(state: &State, key: QueryKey) -> bool {
    let Some(place) = state.queries.get(key).and_then(|query| query.place) else { return false };
    let Some(group) = state.groups.get(place.group).filter(|group| group.stage == Stage::Coded) else {
        return false;
    };
    group.member_at(place).wants_help() && group.recoverable(place.slot, place.row)
}

/// Whether a query waits for nothing but jobs that are late or wait at silent instances.
pub(crate) fn is_held_up(state: &State, query: &Query) -> bool {
    query.extras == 0 && query.jobs.iter().all(|job| holds_up(state, *job))
}

/// Whether a job is late, or waits at a silent instance, where it does not become late.
fn holds_up(state: &State, key: JobKey) -> bool {
    let Some(job) = state.jobs.get(key) else { return true };
    job.late || state.instances.get(job.instance).is_some_and(|instance| instance.silent)
}
