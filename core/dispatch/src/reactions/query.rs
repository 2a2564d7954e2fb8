//! Arrival, cancellation and deadline of a query.

use crate::api::{Accept, Action, Answer, Payer, QueryId, QuerySpec, Reject, Step};
use crate::moves::answer::{count_wasted, forget, retire, without_prediction};
use crate::moves::pools::pool_named;
use crate::moves::resize::{note_deadline, resize_batches};
use crate::moves::retries::give_retries_back;
use crate::moves::room::{look_for_silence, wait_for_instances};
use crate::moves::tell::trace;
use crate::placing::{call_back, place_queue, started_at_once};
use crate::reactions::again::run_on_deployed;
use crate::reactions::backup::answer_from_backup;
use crate::reactions::group::decode_in_time;
use crate::reactions::stand_in::{answer_from_stand_in, set_late_timer};
use crate::state::State;
use crate::state::keys::QueryKey;
use crate::state::query::{Query, StandInState};
use crate::state::timers::Timer;
use crate::turn::Turn;

pub(crate) fn arrived(state: &mut State, turn: &mut Turn, query: QuerySpec) {
    if state.query_names.get(query.id).is_some() {
        return; // the driver broke its word: the first of that name is served
    }
    let key = pool_named(state, turn, query.pool);
    let pool = state.pools.at_mut(key);
    pool.counters.arrived += 1;
    let payer = query.share.map_or(Payer::Model(pool.id), Payer::Share);
    let priority = if query.priority == 0 { pool.settings.default_priority.get() } else { query.priority };
    let full = pool.queue.waiting_of(payer) >= pool.settings.queue_limit.get();
    let waits = |query| state.queries.get(query).is_some_and(|query| query.queued);
    // The last of the payer's least urgent queries makes room for a more urgent one.
    let yields = full.then(|| pool.queue.less_urgent(payer, priority, waits)).flatten();
    let refusal = if query.deadline <= turn.now {
        Some(Reject::Deadline)
    } else if full && yields.is_none() {
        Some(Reject::QueueFull)
    } else {
        None
    };
    if let Some(reason) = refusal {
        let default =
            reason == Reject::Deadline && query.accept == Accept::Any && pool.in_force.default_answer;
        let answer = if default { Answer::Default } else { Answer::Rejected(reason) };
        turn.out.push(Action::Answer(query.id, answer));
        retire(state, key);
        return;
    }
    let pool = state.pools.at_mut(key);
    pool.unanswered += 1;
    pool.arrivals.note(turn.now);
    note_deadline(pool, query.deadline.since(turn.now));
    if query.padded {
        pool.padding.get_or_insert_default();
    }
    let (deserted, outage) = (pool.usable == 0, pool.outage_since.is_some());
    let waiting = state.queries.insert(Query {
        id: query.id,
        pool: key,
        shape: query.shape,
        priority,
        payer,
        arrived: turn.now,
        deadline: query.deadline,
        accept: query.accept,
        codable: query.codable,
        size: query.size,
        padded: query.padded,
        queued: true,
        withheld: false,
        left: false,
        failures: 0,
        retried: 0,
        failed_at: Default::default(),
        failed_in: 0,
        extras: 0,
        place: None,
        backup: None,
        stand_in: StandInState::None,
        stand_ins_started: 0,
        held_back: false,
        noted_late: false,
        jobs: Default::default(),
    });
    state.query_names.insert(query.id, waiting);
    if let Some(yields) = yields {
        without_prediction(state, turn, yields, Reject::QueueFull);
    }
    state.timers.set(query.deadline, Timer::Deadline(waiting));
    set_late_timer(state, turn, key, waiting);
    resize_batches(state, turn, key);
    if started_at_once(state, turn, key, waiting) {
        return;
    }
    let lane = state.queries.at(waiting).lane();
    state.pools.at_mut(key).queue.push(lane, waiting, turn.now);
    state.book.wait(&payer);
    if deserted || outage {
        wait_for_instances(state, turn, key);
    }
    if deserted {
        call_back(state, turn, key);
    } else {
        place_queue(state, turn, key);
    }
    look_for_silence(state, turn, key);
    if state.traced && state.queries.get(waiting).is_some_and(|query| query.queued) {
        let before = state.pools.get(key).map_or(0, |pool| pool.queue.waiting().saturating_sub(1));
        trace(state, turn, waiting, Step::Queued(before));
    }
}

pub(crate) fn cancelled(state: &mut State, turn: &mut Turn, id: QueryId) {
    let Some(key) = state.query_names.get(id) else { return };
    give_retries_back(state, key);
    count_wasted(state, key);
    if let Some(pool) = forget(state, turn, key) {
        state.pools.at_mut(pool).counters.cancelled += 1;
        retire(state, pool);
    }
}

pub(crate) fn expired(state: &mut State, turn: &mut Turn, key: QueryKey) {
    give_retries_back(state, key);
    without_prediction(state, turn, key, Reject::Deadline);
}

/// Reacts to the end of a query's grace: it may receive an approximate answer.
pub(crate) fn grace_is_over(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let Some(query) = state.queries.get_mut(key) else { return };
    query.held_back = false;
    answer_from_backup(state, turn, key);
    answer_from_stand_in(state, turn, key, false);
    decode_in_time(state, turn, key);
    if state.queries.get(key).is_some_and(|query| query.stand_in == StandInState::None) {
        run_on_deployed(state, turn, key);
    }
}
