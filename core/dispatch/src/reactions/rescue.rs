//! Other answers to a query when its last attempt has failed, or no instance is left.
//!
//! They are held back while a prediction may come. If none will, an approximate answer is better than an error. One that
//! is in is given. If other work runs that may answer the query, it is left to that, and rejected once that is lost too.

use crate::api::{Answer, Reject};
use crate::moves::answer::answer;
use crate::reactions::group::decode_at_once;
use crate::reactions::stand_in::answer_from_stand_in;
use crate::rules::hedging::has_reconstruction;
use crate::rules::other_work::{other_work_runs, redundancy_runs};
use crate::rules::stand_in::gives_stand_ins;
use crate::rules::waiting::no_instance_at;
use crate::state::State;
use crate::state::job::Job;
use crate::state::keys::{Keys, QueryKey};
use crate::state::query::StandInState;
use crate::turn::Turn;

/// Gives a query that gets no further attempt the answer that is in, if there is one and it is allowed. Returns whether it
/// has an answer or will have a verdict on one; after a bad verdict the deployed model gets the query once more.
pub(crate) fn is_rescued(state: &mut State, turn: &mut Turn, key: QueryKey) -> bool {
    let Some(query) = state.queries.get(key) else { return true };
    let pool = state.pools.at(query.pool);
    let backup = query.backup.filter(|backup| state.jobs.get(*backup).is_some_and(|job| job.ended));
    if let Some(backup) = backup {
        let row = state.jobs.at(backup).row_of(key).unwrap_or_default();
        state.pools.at_mut(query.pool).counters.backups_served += 1;
        answer(state, turn, key, Answer::Backup { job: backup.id(), row });
        return true;
    }
    match query.stand_in {
        StandInState::Judged(_) => return true,
        StandInState::In(_) if gives_stand_ins(pool, query.payer, query.accept) => {
            answer_from_stand_in(state, turn, key, true);
            return true;
        }
        _ => {}
    }
    has_reconstruction(state, key) && {
        decode_at_once(state, turn, key);
        true
    }
}

/// Leaves a query that gets no further attempt to a backup or a parity that runs. Returns whether there is one.
pub(crate) fn left_to_redundancy(state: &mut State, key: QueryKey) -> bool {
    let runs = state.queries.get(key).is_some_and(|query| redundancy_runs(state, query));
    if runs {
        state.queries.at_mut(key).left = true;
    }
    runs
}

/// The queries without a job of their own that a job which ends might have answered.
pub(crate) fn left_to(state: &State, job: &Job) -> Keys {
    let group = job.group.and_then(|group| state.groups.get(group));
    let members = group.into_iter().flat_map(|group| group.members().map(|member| member.query));
    let waits = |query: &QueryKey| state.queries.get(*query).is_some_and(|query| query.jobs.is_empty());
    job.rows.iter().copied().chain(members).filter(waits).collect()
}

/// Rejects those queries that get no further attempt, or have waited for an instance long enough, and that no other work
/// may answer.
pub(crate) fn reject_lost(state: &mut State, turn: &mut Turn, queries: &[QueryKey]) {
    for key in queries {
        let Some(reason) = reason_to_reject(state, turn, *key) else { continue };
        if !is_rescued(state, turn, *key) && !other_work_runs(state, *key) {
            answer(state, turn, *key, Answer::Rejected(reason));
        }
    }
}

fn reason_to_reject(state: &State, turn: &Turn, key: QueryKey) -> Option<Reject> {
    let query = state.queries.get(key).filter(|query| query.jobs.is_empty())?;
    if query.queued || query.extras > 0 {
        let until = no_instance_at(state.pools.at(query.pool), query)?;
        return (until <= turn.now).then_some(Reject::NoInstance);
    }
    query.left.then_some(Reject::Failed)
}
