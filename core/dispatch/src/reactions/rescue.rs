//! Answers that are in when the last attempt of a query has failed.
//!
//! They are held back while a prediction may come. If none will, an approximate answer is better than an error.

use crate::api::Answer;
use crate::moves::answer::answer;
use crate::reactions::group::decode_at_once;
use crate::reactions::stand_in::answer_from_stand_in;
use crate::rules::hedging::has_reconstruction;
use crate::rules::stand_in::gives_stand_ins;
use crate::state::State;
use crate::state::keys::QueryKey;
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
