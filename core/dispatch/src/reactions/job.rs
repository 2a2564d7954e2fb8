//! The end of a job: outputs, or a failure.

use smallvec::SmallVec;

use crate::api::{Action, Answer, Failure, Reject, Role};
use crate::moves::answer::{answer, retire};
use crate::moves::eject::{eject, forgive, probe_in_service};
use crate::moves::end::{end_job, leave_instance};
use crate::moves::group::{note_predictions, wrap_up};
use crate::moves::judge::{
    confirm_by_answer, confirm_failures, record_dropped, record_failure, record_stand_in_time,
    record_success, record_time,
};
use crate::moves::outputs::{compare_late_prediction, release_reader};
use crate::moves::resize::resize_when_idle;
use crate::placing::{fill, readmit};
use crate::reactions::backup::backup_completed;
use crate::reactions::group::{compare, parity_completed, parity_lost, recover};
use crate::reactions::late::watch_remaining_jobs;
use crate::reactions::outage::note_sign_of_life;
use crate::reactions::rescue::{is_rescued, left_to, left_to_redundancy, reject_lost};
use crate::reactions::retry::{Retry, retry, turn_hedges_into_retries};
use crate::reactions::stand_in::{left_to_stand_in, stand_in_completed, stand_in_failed};
use crate::rules::blame::{FIRST_FAILURES, another_responds, failed_before, failed_elsewhere};
use crate::rules::lateness::patience;
use crate::state::State;
use crate::state::instance::Serves;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, Keys, PoolKey};
use crate::turn::Turn;

pub(crate) fn completed(state: &mut State, turn: &mut Turn, key: JobKey) {
    let Some(role) = state.jobs.get(key).filter(|job| !job.ended).map(|job| job.role) else { return };
    if role == Role::Backup {
        let (pool, instance) = leave_instance(state, turn, key);
        backup_completed(state, turn, key);
        record_success(state, instance, pool);
        job_is_done(state, turn, pool, instance);
        return;
    }
    let Some(job) = end_job(state, turn, key) else { return };
    if let Role::StandIn(_) = role {
        stand_in_completed(state, turn, key, &job);
        if let Some(reason) = record_stand_in_time(state, turn, &job) {
            eject(state, turn, job.instance, job.pool, reason);
        }
        if is_apart(state, job.instance, job.pool) {
            record_success(state, job.instance, job.pool);
        }
        job_is_done(state, turn, job.pool, job.instance);
        return;
    }
    match role {
        Role::Parity(_, index) => parity_completed(state, turn, key, &job, index),
        _ => predicted(state, turn, key, &job),
    }
    let verdict = record_time(state, turn, &job);
    if let Some(reason) = verdict {
        eject(state, turn, job.instance, job.pool, reason);
    }
    job_is_done(state, turn, job.pool, job.instance);
}

/// Answers the queries of a job with its predictions, which may recover others of their group.
fn predicted(state: &mut State, turn: &mut Turn, key: JobKey, job: &Job) {
    note_sign_of_life(state, turn, job.pool);
    let kept = note_predictions(state, key, job);
    // Pools with stand-ins read outputs for comparisons.
    let shelved = !kept && state.pools.at(job.pool).stand_ins.is_some();
    if shelved {
        state.shelf.open(key.id(), job.pool, job.instance);
    }
    compare_late_prediction(state, turn, key, job);
    let group = job.group.filter(|group| state.groups.contains(*group));
    if let Some(group) = group {
        state.groups.at_mut(group).pending += 1; // it must not release these outputs between two answers
    }
    let mut failed_at = SmallVec::<[InstanceKey; 2]>::new();
    for (row, query) in job.rows.iter().enumerate() {
        let Some(waiting) = state.queries.get(*query) else { continue };
        failed_at.extend(waiting.failed_only_at(job));
        let pool = state.pools.at_mut(job.pool);
        pool.response.add(turn.now.since(waiting.arrived));
        pool.counters.hedges_won += u64::from(job.hedge);
        let (id, row) = (key.id(), row as u32);
        let copy = job.role == Role::Copy;
        answer(
            state,
            turn,
            *query,
            if copy { Answer::Hedged { job: id, row } } else { Answer::Exact { job: id, row } },
        );
    }
    confirm_failures(state, turn, job.pool, failed_at);
    confirm_by_answer(state, turn, job.pool, job.instance);
    if shelved {
        release_reader(state, turn, key.id());
    } else if !kept {
        turn.out.push(Action::Release(key.id()));
    }
    if let Some(group) = group {
        state.groups.at_mut(group).pending -= 1;
        recover(state, turn, group);
        compare(state, turn, group);
        wrap_up(state, turn, group);
    }
}

/// Reacts to a failed job. Its instance may be gone with it.
pub(crate) fn failed(state: &mut State, turn: &mut Turn, key: JobKey, failure: Failure) {
    if state.jobs.get(key).is_none_or(|job| job.ended) {
        return;
    }
    let Some(job) = end_job(state, turn, key) else { return };
    // Before its group ends with it.
    let others = left_to(state, &job);
    let repeated = failure == Failure::Model && failed_elsewhere(state, &job);
    let broke_before = failure == Failure::Model && failed_before(state, &job);
    let batch = job.rows.len() > 1;
    // A batch that fails twice probably contains a bad query, even if there is only one instance. A query that
    // fails twice is at fault, as far as can be known, if no other instance could run it.
    let spoiled = failure == Failure::Query
        || repeated
        || (broke_before && (batch || !another_responds(state, turn, job.instance, job.pool)));
    let (most, members, repeats) = {
        let pool = state.pools.at(job.pool);
        (pool.settings.max_attempts.get(), pool.members, pool.policy.repeats())
    };
    // With one attempt, no second one would tell a bad query from the others of its batch.
    let spoiled = spoiled || failure == Failure::Model && batch && repeats && most == 1;
    // An instance that did not get a query which is sent once is no attempt: each of the others may get it.
    let unsent_once = failure == Failure::Unsent && !repeats;
    let most = if unsent_once { most.max(u8::try_from(members).unwrap_or(u8::MAX)) } else { most };
    let predicts = matches!(job.role, Role::Deployed | Role::Copy);
    if spoiled && batch && predicts {
        state.pools.at_mut(job.pool).curve.note_broken(job.rows.len());
    }
    // A failure caused by another query of the batch is not an attempt; the query is tried alone next.
    let own = !(spoiled && batch);
    let (mut again, mut carried, mut left) = (Keys::new(), Keys::new(), Keys::new());
    let tried = match job.role {
        Role::Backup | Role::StandIn(_) => &[],
        // Its queries have their own jobs, and it was none of their attempts.
        _ if job.explores => &[],
        _ => job.rows.as_slice(),
    };
    for query in tried {
        let Some(waiting) = state.queries.get_mut(*query) else { continue };
        waiting.jobs.retain(|holder| *holder != key);
        waiting.failures = waiting.failures.saturating_add(u8::from(own));
        // Neither was the one before, if it was in a batch as well.
        if !own && waiting.failed_at.len() == 1 && waiting.failed_in > 1 {
            waiting.failures = waiting.failures.saturating_sub(1);
        }
        waiting.withheld |= failure == Failure::Withheld;
        // A waiting copy of a withheld query is dropped.
        let waits = waiting.extras > 0 && !waiting.withheld;
        let held = !waiting.jobs.is_empty() || waits;
        if waiting.jobs.is_empty() && waits {
            carried.push(*query);
        } else if held {
            left.push(*query);
        }
        if failure == Failure::Model && waiting.failed_at.len() < FIRST_FAILURES {
            waiting.failed_at.push(job.instance);
            waiting.failed_in = job.rows.len() as u16;
        } else if failure == Failure::Query && batch {
            waiting.failed_in = job.rows.len() as u16;
        }
        // If a copy still runs there is no verdict yet, except for a rejected request.
        if spoiled && job.rows.len() == 1 && (failure == Failure::Query || !held) {
            let first = waiting.failed_at.first().copied().filter(|_| failure == Failure::Model);
            let (retried, broke_batch) = (waiting.retried, waiting.failed_in > 1);
            if let Some(instance) = first
                && forgive(state, turn, instance, job.pool)
            {
                readmit(state, turn, instance);
            }
            if broke_batch {
                state.pools.at_mut(job.pool).curve.note_explained();
            }
            // Retries of bad queries must not use up the budget for failing instances.
            (0..retried).for_each(|_| state.pools.at_mut(job.pool).retries.refund());
            answer(state, turn, *query, Answer::Rejected(Reject::BadQuery));
        } else if !held && waiting.withheld {
            answer(state, turn, *query, Answer::Rejected(Reject::Failed));
        } else if !held && own && waiting.failures >= most {
            let is_left = is_rescued(state, turn, *query)
                || left_to_stand_in(state, turn, *query)
                || left_to_redundancy(state, *query);
            if !is_left {
                answer(state, turn, *query, Answer::Rejected(Reject::Failed));
            }
        } else if !held {
            again.push(*query);
        }
    }
    turn.out.push(Action::Release(key.id()));
    job.twins.iter().for_each(|twin| release_reader(state, turn, twin.other.job));
    let verdict = match failure {
        _ if job.dropped => record_dropped(state, turn, &job),
        // Next to the deployed model, successes of stand-ins prove nothing about predictions, so neither do their
        // failures, which would add up over hours.
        Failure::Instance | Failure::Unsent
            if matches!(job.role, Role::StandIn(_)) && !is_apart(state, job.instance, job.pool) =>
        {
            None
        }
        Failure::Instance | Failure::Unsent => record_failure(state, &job, failure),
        // A query that fails everywhere counts once.
        Failure::Model if predicts && !broke_before => record_failure(state, &job, failure),
        // A parity mixes queries, and the model may have failed because of one of them.
        Failure::Model | Failure::Query | Failure::Withheld => None,
    };
    if let Some(reason) = verdict {
        eject(state, turn, job.instance, job.pool, reason);
        probe_in_service(state, turn, job.instance);
    }
    match job.role {
        Role::Parity(_, index) => parity_lost(state, turn, &job, index),
        Role::StandIn(_) => stand_in_failed(state, turn, key, &job, failure),
        _ => {}
    }
    let (refused, unsent) = (failure == Failure::Query, failure == Failure::Unsent);
    retry(state, turn, &job, Retry { rows: again, spoiled, refused, unsent });
    if !carried.is_empty() {
        turn_hedges_into_retries(state, turn, &job, &carried);
    }
    let avoid = (job.instance, turn.now + patience(state.pools.at(job.pool)));
    watch_remaining_jobs(state, turn, &left, avoid);
    reject_lost(state, turn, &others);
    job_is_done(state, turn, job.pool, job.instance);
}

/// Whether an instance holds the stand-in of a pool and not its deployed model.
fn is_apart(state: &State, key: InstanceKey, pool: PoolKey) -> bool {
    let instance = state.instances.get(key);
    instance.and_then(|of| of.serves(pool)).is_some_and(Serves::is_apart)
}

/// Ends the handling of a job: its instance has room.
pub(crate) fn job_is_done(state: &mut State, turn: &mut Turn, pool: PoolKey, instance: InstanceKey) {
    state.pools.at_mut(pool).running -= 1;
    resize_when_idle(state, turn, pool);
    retire(state, pool);
    fill(state, turn, instance);
}
