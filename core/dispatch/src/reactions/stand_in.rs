//! Stand-ins: their answers are kept until the prediction comes or is late enough.
//!
//! Problem: an approximate answer is worth most for the slowest queries and nothing for the others, which get
//! their prediction soon. The operator bounds the share of approximate answers. The number of late queries is
//! unknown beforehand: a straggler in a hundred, half of all if service times vary widely, or a burst if instances
//! share a disturbance.
//!
//! Choice: a query receives a stand-in's answer when it is older than 1.15 usual times. That wait is stretched as
//! approximations near their bound (see `measure::bound`): hardly while few were given, by a tenth at half of the
//! bound, and without limit near it. So approximations go to ever slower queries, a burst finds room, and with
//! widely varying service times the wait settles where the slower share fits the bound. A client with a lower
//! bound waits at least for the quantile of latency that leaves its share. The full wait of a query counts for
//! that quantile even if it was answered before; otherwise every wait would look short.
//!
//! The driver judges an answer only when it would be given, because most never are.
//!
//! Rejected: the first answer of the two (more than nine in ten would be approximate, for nothing); a fixed wait
//! (late at one load is usual at another); the quantile of latency for all clients (it follows a burst too slowly
//! and spends the bound on hardly late queries); a hard stop at the bound alone (the first queries would use it
//! up, and the slowest find none left).
//!
//! Cold start: until enough times are known, the wait is a setting.

use std::time::Duration;

use crate::api::{
    Action, Answer, Cost, Failure, Judgement, Output, Pair, PolicyKind, PoolId, QueryId, Unsure, times,
};
use crate::moves::answer::answer;
use crate::moves::judge::record_pair;
use crate::moves::outputs::{release_reader, request_check};
use crate::moves::pools::pool_named;
use crate::moves::reserve::request_reservations;
use crate::moves::room::recount;
use crate::moves::tell::{hold_back, note_late};
use crate::moves::watch::look_at;
use crate::placing::stand_ins::place_stand_ins;
use crate::reactions::again::{Ask, compare_with_run, hedge, run_on_deployed};
use crate::rules::lateness::{last_moment, late_for_stand_in, late_while_waiting, stand_in_grace};
use crate::rules::outage::bridges;
use crate::rules::stand_in::{gives_stand_ins, waits_for_comparison, wants_stand_in};
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::job::Job;
use crate::state::keys::{JobKey, Keys, PoolKey, QueryKey};
use crate::state::query::StandInState;
use crate::state::stand_ins::StandInLine;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// An answer held back by the bound is inspected again after this part of the usual time.
const LOOK_AGAIN: f64 = 0.25;

const LEAST: Duration = Duration::from_millis(1);

/// Keeps the outputs of a stand-in, and answers late queries.
pub(crate) fn stand_in_completed(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job) {
    let id = key.id();
    state.shelf.open(id, job.pool, job.instance);
    let at = state.instances.get(job.instance).and_then(|instance| instance.serves(job.pool));
    let apart = at.is_some_and(Serves::is_apart);
    // Without its wait behind others at the instance.
    let took = turn.now.since(job.began);
    let took = at.map_or(took, |at| at.at_usual_speed(took));
    let pool = state.pools.at_mut(job.pool);
    if let Some(stand_ins) = &mut pool.stand_ins {
        let costs = if apart { &mut stand_ins.costs_apart } else { &mut stand_ins.costs };
        costs.note(job.rows.len(), took);
    }
    for (row, query) in job.rows.iter().enumerate() {
        match state.queries.get_mut(*query).filter(|query| query.stand_in == StandInState::Runs(key)) {
            Some(waiting) => {
                state.shelf.add_reader(id);
                waiting.stand_in = StandInState::In(Output { job: id, row: row as u32 });
            }
            None => state.pools.at_mut(job.pool).counters.stand_ins_wasted += 1,
        }
    }
    for twin in &job.twins {
        state.shelf.add_reader(id);
        let stand_in = Output { job: id, row: twin.row };
        request_check(state, turn, Pair { prediction: twin.other, stand_in });
    }
    job.rows.iter().for_each(|query| answer_from_stand_in(state, turn, *query, false));
    release_reader(state, turn, id);
}

/// Reacts to a failed stand-in job. Another may succeed, unless the queries are at fault.
pub(crate) fn stand_in_failed(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job, failure: Failure) {
    for query in &job.rows {
        let Some(waiting) =
            state.queries.get_mut(*query).filter(|query| query.stand_in == StandInState::Runs(key))
        else {
            continue;
        };
        waiting.stand_in = if matches!(failure, Failure::Instance | Failure::Unsent) {
            StandInState::None
        } else {
            StandInState::Useless
        };
        query_is_late_already(state, turn, *query);
        run_on_deployed(state, turn, *query);
    }
}

/// Gives a query its stand-in's answer if it is late enough, or sets a timer.
pub(crate) fn answer_from_stand_in(state: &mut State, turn: &mut Turn, key: QueryKey, is_last: bool) {
    let Some(query) = state.queries.get(key) else { return };
    let StandInState::In(output) = query.stand_in else { return };
    let pool = state.pools.at_mut(query.pool);
    let from = (query.arrived + stand_in_grace(pool, query.accept)).min(last_moment(query));
    // Without attempts left no prediction may come.
    let hopes = !is_last && query.failures < pool.settings.max_attempts.get();
    if from > turn.now && hopes {
        hold_back(state, turn, key, from);
        run_on_deployed(state, turn, key);
    } else if gives_stand_ins(pool, query.payer, query.accept) {
        if let Some(until) = waits_for_comparison(pool, query, turn.now).filter(|_| hopes) {
            pool.stand_ins.iter_mut().for_each(|own| own.awaits_comparison());
            hold_back(state, turn, key, until);
            compare_with_run(state, turn, key);
            return;
        }
        state.shelf.add_reader(output.job);
        state.shelf.lend(output.job);
        turn.out.push(Action::Judge(query.id, output));
        state.queries.at_mut(key).stand_in = StandInState::Judged(output);
    } else {
        pool.counters.stand_ins_over_bound += 1;
        let again =
            pool.usual_service().map_or(pool.settings.stand_in.grace.cold, |usual| times(usual, LOOK_AGAIN));
        let (last, again) = (last_moment(query), turn.now + again.max(LEAST));
        // There may be room by then, and a later look comes too late.
        let at = if last > turn.now { again.min(last) } else { again };
        hold_back(state, turn, key, at);
        run_on_deployed(state, turn, key);
    }
}

/// Reacts to the driver's judgement of a stand-in's answer.
pub(crate) fn judged(state: &mut State, turn: &mut Turn, id: QueryId, output: Output, judgement: Judgement) {
    let found = state
        .query_names
        .get(id)
        .filter(|key| state.queries.at(*key).stand_in == StandInState::Judged(output));
    if let Some(key) = found {
        state.queries.at_mut(key).stand_in = StandInState::In(output);
        give_judged(state, turn, key, output, judgement);
    }
    state.shelf.take_back(output.job);
    release_reader(state, turn, output.job);
}

fn give_judged(state: &mut State, turn: &mut Turn, key: QueryKey, output: Output, judgement: Judgement) {
    let query = state.queries.at(key);
    let (pool_key, pool) = (query.pool, state.pools.at_mut(query.pool));
    let least = pool.settings.stand_in.min_confidence.get() as f32;
    match judgement {
        // Outputs other than classes have no confidence.
        Judgement::Fit(confidence) if confidence.unwrap_or(0.0) >= least => {
            if !gives_stand_ins(pool, query.payer, query.accept) {
                answer_from_stand_in(state, turn, key, false);
                return;
            }
            pool.counters.stand_ins_served += 1;
            if query.jobs.is_empty() {
                pool.stand_ins.iter_mut().for_each(|own| own.given_unwatched());
            }
            let Output { job, row } = output;
            answer(state, turn, key, Answer::StandIn { job, row, confidence });
        }
        _ => {
            pool.counters.stand_ins_unsure += 1;
            let hedges = pool.settings.stand_in.unsure == Unsure::Hedge;
            state.queries.at_mut(key).stand_in = StandInState::Useless;
            release_reader(state, turn, output.job);
            if hedges {
                hedge(state, turn, pool_key, Keys::from_slice(&[key]), Ask::First, None);
            }
            run_on_deployed(state, turn, key);
        }
    }
}

/// Requests another stand-in for a late query that lost its own.
fn query_is_late_already(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let query = state.queries.at(key);
    let pool = state.pools.at(query.pool);
    let late = late_for_stand_in(pool).is_some_and(|after| query.arrived + after <= turn.now);
    if late {
        query_is_late(state, turn, key);
    }
}

/// Puts a late query first in line for a stand-in, unless it has one.
pub(crate) fn query_is_late(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let Some(query) = state.queries.get(key) else { return };
    let (pool_key, pool) = (query.pool, state.pools.at_mut(query.pool));
    let wanted = pool.settings.stand_in.late || bridges(pool, query.accept);
    if !wanted || !wants_stand_in(query, pool) {
        return;
    }
    // A running query is late at a later age, and so are all as approximate answers near their bound. A stand-in
    // made now would only be held back.
    let due = if query.queued { late_while_waiting(pool) } else { late_for_stand_in(pool) };
    let due = due.map(|after| query.arrived + after);
    if let Some(due) = due.filter(|due| *due > turn.now) {
        state.timers.set(due, Timer::Overdue(key));
        return;
    }
    let after = turn.now.since(query.arrived);
    if let Some(stand_ins) = &mut pool.stand_ins {
        stand_ins.is_late(key, |query| state.queries.contains(query), pool.unanswered);
        note_late(state, turn, key, after);
        request_reservations(state, turn, pool_key);
        place_stand_ins(state, turn, pool_key, StandInLine::Late);
    }
}

/// Leaves a query to its stand-in, because the deployed model failed with it as often as allowed. Returns false if none may
/// answer it. The deployed model gets it once more if none does soon.
pub(crate) fn left_to_stand_in(state: &mut State, turn: &mut Turn, key: QueryKey) -> bool {
    let Some(query) = state.queries.get(key) else { return false };
    let pool = state.pools.at(query.pool);
    let is_last = query.failures == pool.settings.max_attempts.get() && query.failures < u8::MAX;
    let joins_line = pool.apart > 0;
    is_last && awaits_stand_in(state, turn, key, joins_line)
}

/// The same for a query whose retry the budget does not pay for: in an outage all retries are refused soon.
pub(crate) fn left_without_retry(state: &mut State, turn: &mut Turn, key: QueryKey) -> bool {
    let Some(query) = state.queries.get(key) else { return false };
    let pool = state.pools.at(query.pool);
    let may = query.failures <= pool.settings.max_attempts.get() && query.failures < u8::MAX;
    let joins_line = bridges(pool, query.accept);
    may && awaits_stand_in(state, turn, key, joins_line)
}

fn awaits_stand_in(state: &mut State, turn: &mut Turn, key: QueryKey, joins_line: bool) -> bool {
    let Some(query) = state.queries.get(key) else { return false };
    let (pool_key, pool) = (query.pool, state.pools.at(query.pool));
    let may = pool.in_force.policy == PolicyKind::StandIn;
    if !may || !gives_stand_ins(pool, query.payer, query.accept) {
        return false;
    }
    let until = turn.now + pool.usual_service().unwrap_or(pool.settings.retry_elsewhere).max(LEAST);
    match query.stand_in {
        StandInState::Judged(_) => {}
        StandInState::In(_) => answer_from_stand_in(state, turn, key, true),
        StandInState::Runs(job) => look_at(state, turn, job, until, Timer::StillLate(job)),
        StandInState::None if joins_line && wants_stand_in(query, pool) => {
            let pool = state.pools.at_mut(pool_key);
            if let Some(stand_ins) = &mut pool.stand_ins {
                stand_ins.is_late(key, |query| state.queries.contains(query), pool.unanswered);
            }
            // A job that begins now has a timer, because its query has no other.
            hold_back(state, turn, key, until);
            place_stand_ins(state, turn, pool_key, StandInLine::Late);
        }
        StandInState::None | StandInState::Useless => return false,
    }
    true
}

/// Takes a worker's measurement of a stand-in's cost.
pub(crate) fn cost_reported(state: &mut State, turn: &Turn, id: PoolId, cost: Cost) {
    let pool = pool_named(state, turn, id);
    let pool = state.pools.at_mut(pool);
    pool.reported_cost = Some(cost);
    if let Some(stand_ins) = &mut pool.stand_ins {
        stand_ins.tell_cost(cost);
    }
}

/// Sets the timer at which a new query becomes late.
pub(crate) fn set_late_timer(state: &mut State, turn: &Turn, pool_key: PoolKey, key: QueryKey) {
    let pool = state.pools.at(pool_key);
    if let Some(after) = late_while_waiting(pool)
        && wants_stand_in(state.queries.at(key), pool)
    {
        state.timers.set(turn.now + after, Timer::Overdue(key));
    }
}

/// Reacts to a comparison of a prediction with its stand-in.
pub(crate) fn checked(state: &mut State, turn: &mut Turn, pair: Pair, agrees: Option<bool>) {
    let made = [pair.prediction, pair.stand_in].map(|output| state.shelf.get(output.job));
    if let ([Some(by), Some(beside)], Some(agrees)) = (made, agrees)
        && let Some(pool) = state.pools.get_mut(by.pool)
    {
        pool.counters.compared += 1;
        pool.counters.disagreed += u64::from(!agrees);
        if let Some(stand_ins) = &mut pool.stand_ins {
            let before = stand_ins.withheld;
            stand_ins.compared(agrees, &pool.settings.stand_in);
            if stand_ins.withheld != before {
                // Withheld ones answer in no outage either.
                recount(state, turn, by.pool);
            }
        }
        let both = [(by.instance, pair.prediction.job), (beside.instance, pair.stand_in.job)];
        record_pair(state, turn, by.pool, both, agrees);
    }
    for (output, kept) in [pair.prediction, pair.stand_in].into_iter().zip(made) {
        if kept.is_some() {
            state.shelf.take_back(output.job);
            release_reader(state, turn, output.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{
        Accept, Action, Actions, Event, InstanceId, InstanceSpec, PolicyKind, PoolId, PoolSettings, QueryId,
        QuerySpec, Served, Settings, ShapeId, Site, Time,
    };
    use crate::dispatcher::Dispatcher;

    const POOL: PoolId = PoolId(0);

    fn query(id: u64, now: u64) -> Event {
        Event::QueryArrived(QuerySpec {
            id: QueryId(id),
            pool: POOL,
            shape: ShapeId(0),
            deadline: at(now + 10_000),
            priority: 0,
            share: None,
            accept: Accept::Any,
            codable: true,
            size: 1,
            padded: false,
        })
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn late_queries_of_a_pool_without_instances_are_forgotten() {
        let settings = PoolSettings { policy: PolicyKind::StandIn, ..PoolSettings::default() };
        let mut dispatcher = Dispatcher::new(Settings::uniform(settings), 7);
        let (mut now, mut actions) = (0, Actions::new());
        let spec =
            InstanceSpec { serves: vec![Served::all(POOL)], slots: 1, site: Site::default(), learns: false };
        dispatcher.on_event(at(now), Event::InstanceJoined(InstanceId(1), spec), &mut actions);
        for id in 0..40 {
            actions.clear();
            dispatcher.on_event(at(now), query(id, now), &mut actions);
            let job = actions.iter().find_map(|action| match action {
                Action::Run(job, _) => Some(job.id),
                _ => None,
            });
            now += 20;
            dispatcher.on_event(at(now), Event::JobCompleted(job.unwrap()), &mut actions);
        }
        dispatcher.on_event(at(now), Event::InstanceLeft(InstanceId(1)), &mut actions);
        for id in 100..1100 {
            dispatcher.on_event(at(now), query(id, now), &mut actions);
            now += 2000;
            dispatcher.on_event(at(now), Event::TimerFired, &mut actions);
        }
        assert_eq!(dispatcher.held().queries, 0, "each was rejected");
        let pool = dispatcher.state.pool_names.get(POOL).unwrap();
        let stand_ins = dispatcher.state.pools.at(pool).stand_ins.as_ref().unwrap();
        assert!(stand_ins.late.len() <= 100, "{} late queries are kept", stand_ins.late.len());
    }
}
