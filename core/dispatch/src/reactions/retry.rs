//! Retries: another job for the queries of a failed one, within the budget.

use crate::api::{Answer, Reject, Role};
use crate::moves::answer::answer;
use crate::moves::line_up::{add_extra, avoid_until};
use crate::moves::retries::give_retries_back;
use crate::moves::room::wait_for_instances;
use crate::placing::{call_back, place};
use crate::reactions::rescue::{is_rescued, left_to_redundancy};
use crate::reactions::stand_in::left_without_retry;
use crate::rules::lateness::patience;
use crate::state::State;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::job::Job;
use crate::state::keys::Keys;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Queries of a failed job that no other job holds.
pub(crate) struct Retry {
    pub(crate) rows: Keys,
    /// One of them broke its batch: each is tried alone, without using the budget.
    pub(crate) spoiled: bool,
    /// The instance rejected the request.
    pub(crate) refused: bool,
    /// The instance did not get the job.
    pub(crate) unsent: bool,
}

/// Tries a job's queries again, within the budget.
pub(crate) fn retry(state: &mut State, turn: &mut Turn, job: &Job, retry: Retry) {
    let Retry { rows: again, spoiled, refused, unsent } = retry;
    if again.is_empty() {
        return;
    }
    let pool = state.pools.at_mut(job.pool);
    let refusal = if pool.removed {
        Some(Reject::NoInstance)
    } else if !pool.policy.repeats() && !unsent {
        Some(Reject::Failed)
    } else if spoiled || pool.retries.spend() {
        pool.counters.retries += 1;
        None
    } else {
        pool.counters.retries_refused += 1;
        Some(Reject::Failed)
    };
    if let Some(reason) = refusal {
        for query in again {
            let is_left = reason == Reject::Failed
                && (is_rescued(state, turn, query)
                    || left_without_retry(state, turn, query)
                    || left_to_redundancy(state, query));
            if !is_left {
                answer(state, turn, query, Answer::Rejected(reason));
            }
        }
        return;
    }
    if spoiled {
        give_retries_back(state, again[0]);
        again.iter().for_each(|query| state.queries.at_mut(*query).retried = 0);
    } else {
        for query in &again {
            let query = state.queries.at_mut(*query);
            query.retried = query.retried.saturating_add(1);
        }
    }
    // A rejected request proves nothing about the instance.
    let elsewhere = (!refused).then(|| (job.instance, turn.now + patience(state.pools.at(job.pool))));
    let extra = |rows| Extra { role: Role::Deployed, rows, avoid: elsewhere, purpose: Purpose::Retry };
    if spoiled {
        for query in again {
            add_extra(state, turn, job.pool, ExtraLine::Urgent, extra(Keys::from_slice(&[query])));
        }
    } else {
        add_extra(state, turn, job.pool, ExtraLine::Urgent, extra(again));
    }
    avoid_until(state, job.pool, elsewhere);
    if state.pools.at(job.pool).outage_since.is_some() {
        wait_for_instances(state, turn, job.pool);
    }
    match state.pools.at(job.pool).usable {
        0 => wait_for_instances(state, turn, job.pool),
        // Perhaps only the instance that failed them is left.
        1 => call_back(state, turn, job.pool),
        _ => {}
    }
    place(state, turn, job.pool);
}

/// Turns waiting copies of a failed job's queries into retries, if they are the last jobs of these queries: they
/// avoid the failed instance.
pub(crate) fn turn_hedges_into_retries(state: &mut State, turn: &mut Turn, job: &Job, queries: &Keys) {
    let pool = state.pools.at_mut(job.pool);
    let until = turn.now + patience(pool);
    for extra in pool.urgent.iter_mut().filter(|extra| extra.rows.iter().any(|row| queries.contains(row))) {
        extra.avoid.get_or_insert((job.instance, until));
    }
    state.timers.set(until, Timer::Elsewhere(job.pool));
    if state.pools.at(job.pool).usable == 0 || state.pools.at(job.pool).outage_since.is_some() {
        wait_for_instances(state, turn, job.pool);
    }
    place(state, turn, job.pool);
}
