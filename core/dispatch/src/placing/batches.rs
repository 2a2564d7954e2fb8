//! Batches of queries find an instance.

use smallvec::SmallVec;

use crate::api::{Class, Reject, Role, Time};
use crate::moves::answer::without_prediction;
use crate::moves::group::join_group;
use crate::moves::line_up::{add_backup, add_extra, leave_queue, line_up_stand_ins};
use crate::moves::start::{Start, start};
use crate::placing::explore::explore;
use crate::placing::room::next_with_room;
use crate::rules::batching::rows_of_batch;
use crate::rules::company::company;
use crate::rules::finish::{takes_last, waits_for_faster};
use crate::rules::overload::{ends, is_overloaded};
use crate::rules::turn::next_lane;
use crate::state::State;
use crate::state::extra::{Extra, ExtraLine};
use crate::state::keys::{InstanceKey, Keys, PoolKey};
use crate::state::queue::LaneId;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Gives a pool's queries to instances with room. False if queries are left.
pub(crate) fn place_batches(state: &mut State, turn: &mut Turn, key: PoolKey) -> bool {
    while let Some((_, lane)) = next_lane(state, turn, key) {
        let Some(instance) = next_with_room(state, turn, key) else { return false };
        if wait_for_faster(state, turn, key, instance) {
            return false;
        }
        start_batch_of(state, turn, key, instance, lane);
    }
    wait_for_company(state, key);
    true
}

/// Gives an instance the batch with the first rank among its pools.
pub(crate) fn take_batch(state: &mut State, turn: &mut Turn, key: InstanceKey) -> bool {
    let mut best: Option<(_, _, _)> = None;
    let mut waiting: SmallVec<[(PoolKey, Time); 2]> = SmallVec::new();
    let of = state.instances.at(key);
    for serves in of.serves.iter().filter(|serves| serves.takes_queries() && of.has_place_for(serves)) {
        if let Some((rank, lane)) = next_lane(state, turn, serves.pool)
            && best.as_ref().is_none_or(|(first, ..)| rank < *first)
        {
            match waits_for_faster(state, turn, serves.pool, key) {
                None => best = Some((rank, serves.pool, lane)),
                Some(until) => waiting.push((serves.pool, until)),
            }
        }
    }
    waiting.into_iter().for_each(|(pool, until)| look_again_at(state, pool, until));
    let Some((_, pool, lane)) = best else { return false };
    start_batch_of(state, turn, pool, key, lane);
    true
}

/// Whether a pool's queries wait for a faster instance than this one. A timer is set if so.
pub(crate) fn wait_for_faster(state: &mut State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let until = waits_for_faster(state, turn, key, instance);
    until.into_iter().for_each(|until| look_again_at(state, key, until));
    until.is_some()
}

/// Sets the timer at which a faster instance should be free.
fn look_again_at(state: &mut State, key: PoolKey, until: Time) {
    let pool = state.pools.at_mut(key);
    if pool.faster_timer.is_none_or(|set| until < set) {
        pool.faster_timer = Some(until);
        state.timers.set(until, Timer::Faster(key));
    }
}

fn start_batch_of(state: &mut State, turn: &mut Turn, key: PoolKey, instance: InstanceKey, lane: LaneId) {
    shed_hopeless(state, turn, key, lane);
    let last = takes_last(state, turn, key, instance);
    let most = rows_of_batch(state, turn, key, lane);
    let rows = company(state, turn, key, lane, (most, last));
    if !rows.is_empty() {
        rows.iter().for_each(|query| leave_queue(state, *query));
        return start_batch(state, turn, key, instance, rows);
    }
    let pool = state.pools.at_mut(key);
    let waits = |query| state.queries.get(query).is_some_and(|query| query.queued);
    let rows = pool.queue.take(lane, most, last, waits);
    state.book.leave(&lane.payer, rows.len() as u32);
    start_batch(state, turn, key, instance, rows);
}

pub(crate) fn start_batch(
    state: &mut State,
    turn: &mut Turn,
    key: PoolKey,
    instance: InstanceKey,
    rows: Keys,
) {
    let pool = state.pools.at_mut(key);
    let utilisation = pool.utilisation(turn.now);
    let along = pool.policy.along(utilisation);
    let job = start(
        state,
        turn,
        Start { pool: key, instance, role: Role::Deployed, rows, class: Class::Query, purpose: None },
    );
    join_group(state, turn, key, job, along);
    explore(state, turn, key, job);
    line_up_stand_ins(state, turn, key, job);
    for _ in 0..along.copies {
        let pool = state.pools.at(key);
        if pool.spare.len() < pool.settings.spare_limit.get() as usize {
            let copy = Extra::copy(state.jobs.at(job).rows.clone());
            add_extra(state, turn, key, ExtraLine::Spare, copy);
        }
    }
    if along.backup {
        let rows = state.jobs.at(job).rows.clone();
        add_backup(state, turn, key, rows);
    }
}

/// Sheds hopeless queries at the head of a lane. At least one query is left.
fn shed_hopeless(state: &mut State, turn: &mut Turn, key: PoolKey, lane: LaneId) {
    while is_overloaded(state, turn, key, lane) {
        let Some((first, _)) = ends(state, key, lane) else { return };
        state.pools.at_mut(key).counters.given_up += 1;
        without_prediction(state, turn, first, Reject::Overload);
    }
}

/// Sets the timer of a batch that waits for more queries although an instance has room.
pub(crate) fn wait_for_company(state: &mut State, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    if pool.queue.waiting() == 0 || (pool.idle.is_empty() && state.token_givers == 0 && state.crowded == 0) {
        return;
    }
    let Some(at) = pool.queue.ready_at(pool.readiness) else { return };
    if pool.batch_timer.is_none_or(|set| at < set) {
        pool.batch_timer = Some(at);
        state.timers.set(at, Timer::Batch(key));
    }
}
