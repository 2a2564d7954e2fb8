//! Answers a query exactly once and removes it from the state.

use crate::api::{Accept, Action, Answer, Payer, Reject};
use crate::moves::group::finish_if_useless;
use crate::moves::outputs::{leave_stand_in, pair_answers};
use crate::rules::outage::bridges;
use crate::state::State;
use crate::state::keys::{JobKey, PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::state::query::StandInState;
use crate::turn::Turn;

/// Answers a query, unless it has been.
pub(crate) fn answer(state: &mut State, turn: &mut Turn, key: QueryKey, answer: Answer) {
    let Some(query) = state.queries.get(key) else { return };
    turn.out.push(Action::Answer(query.id, answer));
    let pool = state.pools.at_mut(query.pool);
    let approximate = matches!(answer, Answer::StandIn { .. });
    let bridged = approximate && bridges(pool, query.accept);
    pool.counters.stand_ins_outage += u64::from(bridged);
    if pool.stand_ins.is_some() && !matches!(answer, Answer::Rejected(_)) {
        if !bridged {
            note_answer(state, key, approximate);
        }
        pair_answers(state, turn, key, &answer);
    }
    if !approximate {
        count_wasted(state, key);
    }
    if let Some(pool) = forget(state, turn, key) {
        retire(state, pool);
    }
}

/// Notes a query's answer for the bounds of all versions of its model.
fn note_answer(state: &mut State, key: QueryKey, approximate: bool) {
    let query = state.queries.at(key);
    let own = state.pools.at_mut(query.pool);
    own.note_answer(query.payer, query.accept, approximate);
    for other in state.versions.others(own.id) {
        if let Some(other) = state.pool_names.get(other).and_then(|other| state.pools.get_mut(other)) {
            other.note_answer(query.payer, query.accept, approximate);
        }
    }
}

/// Counts the answer of a query's stand-in as one that no client receives, if it has arrived.
pub(crate) fn count_wasted(state: &mut State, key: QueryKey) {
    if let Some(query) = state.queries.get(key)
        && matches!(query.stand_in, StandInState::In(_) | StandInState::Judged(_))
    {
        state.pools.at_mut(query.pool).counters.stand_ins_wasted += 1;
    }
}

/// Answers a query without a prediction: with the default answer, or a rejection.
pub(crate) fn without_prediction(state: &mut State, turn: &mut Turn, key: QueryKey, why: Reject) {
    let Some(query) = state.queries.get(key) else { return };
    // A client that requires predictions takes no default either.
    let default = query.accept == Accept::Any && state.pools.at(query.pool).in_force.default_answer;
    answer(state, turn, key, if default { Answer::Default } else { Answer::Rejected(why) });
}

/// Removes a query and returns its pool. Jobs without another query are dropped.
pub(crate) fn forget(state: &mut State, turn: &mut Turn, key: QueryKey) -> Option<PoolKey> {
    let query = state.queries.remove(key)?;
    state.query_names.remove(query.id);
    let pool = state.pools.at_mut(query.pool);
    pool.unanswered -= 1;
    if query.queued {
        state.book.leave(&query.payer, 1);
        pool.queue.gone(query.lane(), |other| state.queries.get(other).is_some_and(|query| query.queued));
    }
    for holder in &query.jobs {
        let Some(job) = state.jobs.get_mut(*holder) else { continue };
        job.waiting -= 1;
        // A group may still read the prediction; it drops the job at its end.
        let wanted = job.group.and_then(|group| state.groups.get(group)).is_some_and(|g| g.misses(&job.rows));
        if job.waiting == 0 && !job.dropped && !wanted {
            job.dropped = true;
            pool.counters.dropped += 1;
            turn.out.push(Action::Drop(holder.id()));
        }
    }
    if let Some(backup) = query.backup {
        leave_backup(state, turn, backup);
    }
    leave_stand_in(state, turn, query.stand_in);
    if let Some(place) = query.place {
        finish_if_useless(state, turn, place.group);
    }
    Some(query.pool)
}

/// Removes a query from its backup job.
fn leave_backup(state: &mut State, turn: &mut Turn, key: JobKey) {
    let Some(job) = state.jobs.get_mut(key) else { return };
    job.waiting -= 1;
    if job.waiting > 0 || job.dropped {
        return;
    }
    if job.ended {
        state.jobs.remove(key);
        turn.out.push(Action::Release(key.id()));
    } else {
        job.dropped = true;
        state.pools.at_mut(job.pool).counters.dropped += 1;
        turn.out.push(Action::Drop(key.id()));
    }
}

/// Removes a pool without queries and jobs if its model is unloaded, or if only queries ever named it.
#[inline]
pub(crate) fn retire(state: &mut State, key: PoolKey) {
    let goes = |pool: &&Pool| pool.removed || pool.provisional;
    let done = |pool: &&Pool| pool.running == 0 && pool.unanswered == 0;
    let Some(pool) = state.pools.get(key).filter(goes).filter(done) else { return };
    if !pool.removed {
        state.pool_names.remove(pool.id);
    }
    let id = pool.id;
    state.book.close(&Payer::Model(id), &id);
    state.pools.remove(key);
}
