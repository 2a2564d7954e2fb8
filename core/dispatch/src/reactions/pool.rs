//! Settings, versions and timers of a pool.

use std::time::Duration;

use crate::api::{Answer, InForce, PoolId, PoolSettings, Reject, Time};
use crate::moves::answer::{answer, retire};
use crate::moves::group::finish;
use crate::moves::line_up::forget_extras;
use crate::moves::pools::{pool_named, promise_own};
use crate::moves::reserve::withdraw_reservations;
use crate::moves::room::{recount, refresh, wait_for_instances};
use crate::moves::watch::watch_jobs_in;
use crate::placing::extras::place_extras;
use crate::placing::{place, place_queue};
use crate::reactions::outage::line_up_again;
use crate::reactions::rescue::{is_rescued, reject_lost};
use crate::rules::other_work::other_work_runs;
use crate::rules::waiting::{no_instance_at, queries_without_instance};
use crate::state::State;
use crate::state::extra::ExtraLine;
use crate::state::group::Group;
use crate::state::keys::{Keys, PoolKey};
use crate::state::timers::Timer;
use crate::turn::Turn;

/// The shortest time between two looks at queries without an instance.
const LEAST: Duration = Duration::from_millis(1);

pub(crate) fn settings_changed(
    state: &mut State,
    turn: &mut Turn,
    id: PoolId,
    settings: PoolSettings,
    in_force: InForce,
) {
    promise_own(state, id, &settings);
    state.settings.pools.insert(id, settings.clone());
    let pool = pool_named(state, turn, id);
    state.pools.at_mut(pool).provisional = false;
    state.pools.at_mut(pool).change(settings, in_force);
    watch_jobs_in(state, turn, pool);
    recount(state, turn, pool);
    line_up_again(state, turn, pool);
    if state.pools.at(pool).no_instance_timer.is_some() {
        wait_for_instances(state, turn, pool);
    }
    place(state, turn, pool);
}

/// Lets a new version of a model inherit the latest answers of the previous one.
pub(crate) fn version_added(state: &mut State, turn: &Turn, id: PoolId, predecessor: PoolId) {
    state.versions.add(id, predecessor);
    let Some(before) = state.pool_names.get(predecessor).and_then(|key| state.pools.get(key)) else {
        return;
    };
    if let Some(answered) = before.answered() {
        let pool = pool_named(state, turn, id);
        state.pools.at_mut(pool).inherit(answered);
    }
}

/// Unloads a model.
pub(crate) fn pool_removed(state: &mut State, turn: &mut Turn, id: PoolId) {
    let key = state.pool_names.remove(id);
    // As long as its versions are known: at a worker the withdrawal ends their reservations too.
    key.into_iter().for_each(|key| withdraw_reservations(state, turn, key));
    state.versions.remove(id);
    let Some(key) = key else { return };
    state.settings.pools.remove(&id);
    let mut changed = state.instances.keys();
    changed.retain(|instance| state.instances.at_mut(*instance).leave(key));
    let waiting = queries_without_instance(state, key);
    let pool = state.pools.at_mut(key);
    pool.removed = true;
    (pool.idle, pool.redundancy_idle, pool.apart_idle) = Default::default();
    // No instance can run its parities, and no group may outlive its pool.
    let of_pool = |(id, group): (_, &Group)| (group.pool == key).then_some(id);
    let groups: Vec<_> = state.groups.iter().filter_map(of_pool).collect();
    groups.into_iter().for_each(|group| finish(state, turn, group));
    for query in waiting {
        answer(state, turn, query, Answer::Rejected(Reject::NoInstance));
    }
    forget_extras(state, key);
    let left = state.queries.iter().filter(|(_, query)| query.pool == key && query.left);
    let left: Keys = left.map(|(query, _)| query).collect();
    reject_lost(state, turn, &left);
    for instance in changed {
        // It may hold more jobs of its other models.
        refresh(state, turn, instance);
        let others = state.instances.at(instance).serves.iter().map(|serves| serves.pool);
        state.unplaced.extend(others);
    }
    retire(state, key);
}

/// Places a pool's queries anew: the faster instance that they wait for should be free by now.
pub(crate) fn faster_is_late(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    if pool.faster_timer.is_some_and(|at| at <= turn.now) {
        pool.faster_timer = None;
        place_queue(state, turn, key);
    }
}

/// Rejects the queries that have waited for an instance long enough.
pub(crate) fn reject_without_instance(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get_mut(key) else { return };
    pool.no_instance_timer = None;
    let grace = pool.settings.no_instance_grace;
    let mut next = None;
    for query in queries_without_instance(state, key) {
        // An answered query may be named again, because the queue deletes lazily.
        let Some(waiting) = state.queries.get(query) else { continue };
        let Some(until) = no_instance_at(state.pools.at(key), waiting) else { return };
        if until <= turn.now {
            if !is_rescued(state, turn, query) && !other_work_runs(state, query) {
                answer(state, turn, query, Answer::Rejected(Reject::NoInstance));
            } else if state.queries.contains(query) {
                // After a bad verdict, or if that work is lost, it still waits.
                let until = turn.now + grace.max(LEAST);
                next = Some(next.map_or(until, |first: Time| first.min(until)));
            }
        } else {
            next = Some(next.map_or(until, |first: Time| first.min(until)));
        }
    }
    if let (Some(at), Some(pool)) = (next, state.pools.get_mut(key)) {
        pool.no_instance_timer = Some(at);
        state.timers.set(at, Timer::NoInstance(key));
    }
}

/// Starts batches that have waited long enough for more queries.
pub(crate) fn batch_is_old(state: &mut State, turn: &mut Turn, key: PoolKey) {
    if let Some(pool) = state.pools.get_mut(key) {
        pool.batch_timer = None;
        place_queue(state, turn, key);
    }
}

/// Starts retries that have waited long enough for another instance.
pub(crate) fn retry_anywhere(state: &mut State, turn: &mut Turn, key: PoolKey) {
    if state.pools.contains(key) {
        place_extras(state, turn, key, ExtraLine::Urgent);
    }
}
