//! The backup model's answers, kept until the prediction comes or is late.

use crate::api::{Action, Answer};
use crate::moves::answer::answer;
use crate::moves::tell::hold_back;
use crate::rules::lateness::{grace, last_moment};
use crate::state::State;
use crate::state::keys::{JobKey, QueryKey};
use crate::turn::Turn;

/// Keeps the outputs of a backup job, and answers late queries.
pub(crate) fn backup_completed(state: &mut State, turn: &mut Turn, key: JobKey) {
    let job = state.jobs.at_mut(key);
    job.ended = true;
    let rows = job.rows.clone();
    if job.waiting == 0 {
        state.jobs.remove(key);
        turn.out.push(Action::Release(key.id()));
    }
    rows.into_iter().for_each(|query| answer_from_backup(state, turn, query));
}

/// Answers a query from the backup model if its prediction is late, or sets a timer.
pub(crate) fn answer_from_backup(state: &mut State, turn: &mut Turn, key: QueryKey) {
    let Some(query) = state.queries.get(key) else { return };
    let Some((job_key, job)) = query.backup.and_then(|backup| Some((backup, state.jobs.get(backup)?))) else {
        return;
    };
    if !job.ended {
        return;
    }
    let pool = state.pools.at_mut(query.pool);
    let from = (query.arrived + grace(pool)).min(last_moment(query));
    if from > turn.now && !query.left {
        hold_back(state, turn, key, from);
        return;
    }
    let row = job.rows.iter().position(|row| *row == key).unwrap_or_default() as u32;
    pool.counters.backups_served += 1;
    answer(state, turn, key, Answer::Backup { job: job_key.id(), row });
}
