//! Watches jobs, so that no query waits for a hung instance while another one could answer it.
//!
//! Problem: any job can hang: the first job of a query, its copy, the retry of a failed job, or a stand-in of a
//! waiting query. A hung instance sends no event, so only a timer set before can react.
//!
//! Choice: every job that is a query's last one has a timer. When it fires, the queries get another job, or the
//! timer is set again, because the budget may be spent, the pool crowded, or the copy may fail or hang as well. A
//! query gets another copy only when all its jobs are late, and never more jobs than `max_attempts`. When a copy
//! fails, the late job that is left is inspected at once. A stand-in of a waiting query has twice its usual time;
//! then its queries go first on the deployed model. Jobs queued ahead behind others have no timer; a silence timer
//! watches their instance.
//!
//! Policies that never hedge set no timer for the first job of a query. They set one when a job failed while
//! another job of the same query ran, because that job is then the last one.
//!
//! Rejected: a timer for each query (most jobs end in time, and a timer for each job is already a large part of
//! the work); a single inspection when the job becomes late (a copy that was refused, failed or hung was never
//! replaced).
//!
//! Cold start: while service times are unknown no job is late. The timer is set again at twice the job's age, so a
//! job that started cold is hedged as soon as service times are known.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Role, Time};
use crate::rules::lateness::{late_after, longest_ahead, patience, stand_in_within};
use crate::state::State;
use crate::state::keys::{InstanceKey, JobKey, PoolKey};
use crate::state::query::Query;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// The shortest time between two inspections of a job.
const LEAST: Duration = Duration::from_millis(1);

/// The longest time between two inspections of a late job, unless jobs usually take longer. A crowd ends and a budget
/// fills without an event for the job, and its query must not wait for the next inspection while an instance is idle.
const MOST: Duration = Duration::from_millis(100);

/// Notes that an instance begins a job now, and sets its timer.
pub(crate) fn begin(state: &mut State, turn: &Turn, key: JobKey) {
    let Some(job) = state.jobs.get_mut(key) else { return };
    job.began = turn.now;
    watch_job(state, turn, key);
}

/// Sets the timer of a job that runs, where the policy hedges and none is set.
fn watch_job(state: &mut State, turn: &Turn, key: JobKey) {
    let Some(job) = state.jobs.get(key) else { return };
    let pool = state.pools.at(job.pool);
    let predicts = matches!(job.role, Role::Deployed | Role::Copy);
    if !predicts || job.look_at.is_some() || job.waiting == 0 || !pool.policy.hedges() {
        return;
    }
    match late_after(state, job) {
        Some(after) => look_at(state, turn, key, job.began + after, Timer::Late(key)),
        None => {
            let at = job.began + pool.settings.retry_elsewhere.max(LEAST);
            look_at(state, turn, key, at, Timer::StillLate(key));
        }
    }
}

/// Sets the timers of an instance's jobs that run by now and have none.
pub(crate) fn watch_jobs_of(state: &mut State, turn: &Turn, key: InstanceKey) {
    let Some(instance) = state.instances.get(key) else { return };
    let held: SmallVec<[JobKey; 4]> =
        instance.jobs.iter().copied().filter(|job| instance.runs(*job)).collect();
    held.into_iter().for_each(|job| watch_job(state, turn, job));
}

/// Sets the timers of a pool's jobs: its policy may hedge from now on.
pub(crate) fn watch_jobs_in(state: &mut State, turn: &Turn, pool: PoolKey) {
    if !state.pools.at(pool).policy.hedges() {
        return;
    }
    // An instance that no longer serves the pool may still run its jobs.
    for key in state.instances.keys() {
        watch_jobs_of(state, turn, key);
        watch_silence(state, key);
    }
}

/// Sets the timer of a stand-in job if one of its queries has no other job.
pub(crate) fn watch_stand_in(state: &mut State, turn: &Turn, key: JobKey) {
    let job = state.jobs.at(key);
    let alone = |query: &Query| query.jobs.is_empty() && query.extras == 0;
    if job.rows.iter().any(|query| state.queries.get(*query).is_some_and(alone)) {
        let pool = state.pools.at(job.pool);
        let within = stand_in_within(state, job).unwrap_or(pool.settings.retry_elsewhere);
        // It may wait there behind other jobs.
        let behind = if job.alone { Duration::ZERO } else { longest_ahead(state, job.instance) };
        let at = turn.now + within.max(pool.settings.hedge.min_delay) + behind;
        look_at(state, turn, key, at, Timer::StillLate(key));
    }
}

/// Sets the timer of a job, unless an earlier one is set.
pub(crate) fn look_at(state: &mut State, turn: &Turn, key: JobKey, at: Time, timer: Timer) {
    let Some(job) = state.jobs.get_mut(key) else { return };
    let at = at.max(turn.now);
    if job.look_at.is_none_or(|set| at < set) {
        job.look_at = Some(at);
        state.timers.set(at, timer);
    }
}

/// Sets the timer of a job again, after about the time in which another instance should become free.
pub(crate) fn look_again(state: &mut State, turn: &Turn, key: JobKey) {
    let Some(job) = state.jobs.get(key) else { return };
    // The longer it has run, the less likely the next inspection helps.
    let backoff = (turn.now.since(job.began) / 8).clamp(LEAST, MOST);
    let at = turn.now + patience(state.pools.at(job.pool)).max(backoff);
    look_at(state, turn, key, at, Timer::StillLate(key));
}

/// Whether the timer that fired is the one that the job waits for: it may have been replaced by an earlier one.
pub(crate) fn is_due(state: &mut State, turn: &Turn, key: JobKey) -> bool {
    let now = turn.now;
    let Some(job) = state.jobs.get_mut(key) else { return false };
    let due = job.look_at.is_some_and(|at| at <= now);
    if due {
        job.look_at = None;
    }
    due
}

/// Sets the silence timer of an instance with queued batches.
pub(crate) fn watch_silence(state: &mut State, key: InstanceKey) {
    let Some(instance) = state.instances.get(key) else { return };
    if instance.watched || !instance.holds_more_than_it_runs() {
        return;
    }
    let at = instance.heard + longest_ahead(state, key);
    state.instances.at_mut(key).watched = true;
    state.timers.set(at, Timer::Silence(key));
}
