//! The beginning and the end of an outage, in which stand-ins answer (`rules::outage`).

use crate::moves::room::{look_for_silence, wait_for_instances};
use crate::reactions::again::run_on_deployed;
use crate::reactions::stand_in::{answer_from_stand_in, query_is_late};
use crate::rules::outage::is_out;
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::keys::{PoolKey, QueryKey};
use crate::state::query::StandInState;
use crate::turn::Turn;

/// Looks whether a pool is out, and again while it has jobs.
pub(crate) fn outage_timer_fired(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    if pool.outage_timer.is_none_or(|at| at > turn.now) {
        return;
    }
    pool.outage_timer = None;
    if !pool.bridges_outages() || pool.outage_since.is_some() || pool.removed {
        return;
    }
    if pool.usual_service().is_some_and(|usual| turn.behind > usual / 2) {
        // This process was away, and answers may not have been read yet.
        pool.predicted_at = turn.now;
    }
    if is_out(state, turn, key) {
        begin(state, turn, key);
        return;
    }
    look_for_silence(state, turn, key);
}

fn begin(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    pool.outage_since = Some(turn.now);
    pool.counters.outages += 1;
    wait_for_instances(state, turn, key);
    for query in oldest_first(state, key) {
        leave_silent_stand_in(state, query);
        query_is_late(state, turn, query);
        answer_from_stand_in(state, turn, query, false);
        if state.queries.get(query).is_some_and(|query| query.stand_in == StandInState::None) {
            // It may have left the queue for the stand-in that it lost.
            run_on_deployed(state, turn, query);
        }
    }
}

/// Lines up the queries of a pool that is out: its new settings may allow them another stand-in.
pub(crate) fn line_up_again(state: &mut State, turn: &mut Turn, key: PoolKey) {
    if state.pools.at(key).outage_since.is_some() {
        oldest_first(state, key).into_iter().for_each(|query| query_is_late(state, turn, query));
    }
}

/// The queries of a pool, the oldest first.
fn oldest_first(state: &State, key: PoolKey) -> Vec<QueryKey> {
    let of_pool = state.queries.iter().filter(|(_, query)| query.pool == key);
    let mut queries: Vec<_> = of_pool.map(|(key, query)| (query.arrived, query.id, key)).collect();
    queries.sort_unstable_by_key(|(arrived, id, _)| (*arrived, *id));
    queries.into_iter().map(|(.., query)| query).collect()
}

/// Removes a query from a stand-in job next to the deployed model: that instance does not answer either.
fn leave_silent_stand_in(state: &mut State, key: QueryKey) {
    let Some(query) = state.queries.get_mut(key) else { return };
    let StandInState::Runs(job) = query.stand_in else { return };
    let Some(job) = state.jobs.get_mut(job) else { return };
    let instance = state.instances.get(job.instance);
    if !instance.and_then(|of| of.serves(query.pool)).is_some_and(Serves::is_apart) {
        // The job is not dropped, because its instance is busy with it anyway. It was not the query's fault.
        job.waiting -= 1;
        query.stand_in = StandInState::None;
        query.stand_ins_started = query.stand_ins_started.saturating_sub(1);
    }
}

/// Notes a prediction: the deployed model answers.
pub(crate) fn note_sign_of_life(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    pool.predicted_at = turn.now;
    if pool.usable > 0 {
        pool.outage_since = None;
    }
}
