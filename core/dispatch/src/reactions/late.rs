//! Late jobs and silent instances.
//!
//! Problem: for a model of milliseconds an instance runs one batch at a time; waiting work can go to the first
//! free instance, and a hung instance holds one batch. For a model of microseconds the network takes longer than
//! the run, so the instance would idle between batches, and both ends would wake up for each of them.
//!
//! Choice: an instance may hold the work of `ahead_us`, at most sixteen batches for each slot. So no query waits
//! longer than that at an instance while others are free. If all instances hold some, a batch goes to one that
//! completed a batch just before, the less loaded of two. Instances shared with other frontends share that time.
//! An instance with several models holds what the slowest used one allows.
//!
//! A hung instance still costs little. If it completes nothing for as long as its work should take, the batches
//! behind the running jobs move to other instances, before the queue and without the hedge budget. Until it
//! responds it gets one batch at a time. If this process itself was away, no instance counts as silent. One
//! silence counts as one bad answer. Moved work runs twice if the instance returns: at most `ahead_us` of work for
//! each silence. Nothing moves while the pool is crowded. Policies without hedging, or whose groups need separate
//! instances, queue nothing ahead; only `none` does, because it is used as a pass-through.
//!
//! Rejected: a configured depth (it exists as `slots`, and operators did not know that they needed it); a depth
//! that grows with throughput (it must be searched under load, and hung instances are noticed late); times
//! reported by the server (they exclude the network).
//!
//! Cold start: one batch at a time until sixteen were measured.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Role, Time};
use crate::moves::line_up::add_extra;
use crate::moves::room::refresh;
use crate::moves::tell::note_late;
use crate::moves::watch::{is_due, look_again, look_at, watch_silence};
use crate::placing::extras::place_extras;
use crate::reactions::again::{Ask, hedge, run_on_deployed};
use crate::rules::finish::expected_run;
use crate::rules::gain::{Gain, gain};
use crate::rules::hedging::{has_reconstruction, is_held_up, usable_beside_holders};
use crate::rules::lateness::{late_after, longest_ahead, patience};
use crate::rules::stand_in::stand_in_expected;
use crate::state::State;
use crate::state::extra::{Extra, ExtraLine, Purpose};
use crate::state::job::Job;
use crate::state::keys::{Avoid, InstanceKey, JobKey, PoolKey, QueryKey};
use crate::state::query::{Query, StandInState};
use crate::state::timers::Timer;
use crate::turn::Turn;

/// The shortest time between two silence timers.
const LEAST: Duration = Duration::from_millis(1);

/// Reacts to the timer of a late job: its queries may get copies, unless a parity saves them.
pub(crate) fn late(state: &mut State, turn: &mut Turn, key: JobKey) {
    if is_due(state, turn, key) {
        became_late(state, turn, key);
    }
}

fn became_late(state: &mut State, turn: &mut Turn, key: JobKey) {
    if let Some(at) = in_time_until(state, turn, key) {
        look_at(state, turn, key, at, Timer::StillLate(key));
        return;
    }
    let Some(job) = state.jobs.get_mut(key) else { return };
    job.late = true;
    let (rows, after, instance) = (job.rows.clone(), turn.now.since(job.began), job.instance);
    rows.iter().for_each(|query| note_late(state, turn, *query, after));
    hedge_job(state, turn, key, Ask::First, None);
    watch_silence(state, instance);
}

/// The time of the next inspection of a job for which a copy saves less than its price.
fn in_time_until(state: &State, turn: &Turn, key: JobKey) -> Option<Time> {
    let job = state.jobs.get(key)?;
    let queries = job.rows.iter().filter(|query| state.queries.contains(**query));
    let gains: Option<SmallVec<[Gain; 2]>> = queries.map(|query| gain(state, turn, *query)).collect();
    let best = gains?.into_iter().max_by(|one, other| one.runs.total_cmp(&other.runs))?;
    let pool = state.pools.at(job.pool);
    let price = pool.hedges.price();
    if best.runs > price || !price.is_finite() {
        return None;
    }
    let (expected, usual) = (expected_run(state, job)?, pool.pace.fastest(job.size)?);
    let age = turn.now.since(job.began).as_nanos() as f64;
    let wanted = (best.least + price * usual) / expected;
    let at =
        job.began + Duration::from_nanos((pool.pace.rest.exceeds(wanted, age / expected) * expected) as u64);
    Some(at.clamp(turn.now + LEAST, turn.now + patience(pool).max(LEAST)))
}

/// Reacts to a later timer of a job.
pub(crate) fn still_late(state: &mut State, turn: &mut Turn, key: JobKey) {
    if !is_due(state, turn, key) {
        return;
    }
    let job = state.jobs.at(key);
    if matches!(job.role, Role::StandIn(_)) {
        let rows = job.rows.clone();
        for query in rows {
            if state.queries.get(query).is_some_and(|of| of.stand_in == StandInState::Runs(key)) {
                run_on_deployed(state, turn, query);
            }
        }
        return;
    }
    let pool = state.pools.at(job.pool);
    if !job.late && pool.policy.hedges() {
        match late_after(state, job) {
            Some(after) if job.began + after <= turn.now => became_late(state, turn, key),
            Some(after) => look_at(state, turn, key, job.began + after, Timer::Late(key)),
            None => {
                let age = turn.now.since(job.began).max(pool.settings.retry_elsewhere).max(LEAST);
                look_at(state, turn, key, turn.now + age, Timer::StillLate(key));
            }
        }
        return;
    }
    let pool = job.pool;
    state.jobs.at_mut(key).late = true;
    hedge_job(state, turn, key, Ask::Again, None);
    // A waiting copy may now use an instance that was reserved.
    place_extras(state, turn, pool, ExtraLine::Urgent);
}

/// Requests copies of a late job's queries, and sets its timer again.
fn hedge_job(state: &mut State, turn: &mut Turn, key: JobKey, ask: Ask, avoid: Option<Avoid>) {
    let Some(job) = state.jobs.get(key).filter(|job| job.waiting > 0) else { return };
    let (pool, mut rows) = (job.pool, job.rows.clone());
    rows.retain(|query| !has_reconstruction(state, *query));
    if let Some(at) = rows.iter().filter_map(|query| stand_in_expected(state, turn, *query)).max() {
        // The stand-in may be late as well.
        look_at(state, turn, key, at, Timer::StillLate(key));
        rows.retain(|query| stand_in_expected(state, turn, *query).is_none());
    }
    hedge(state, turn, pool, rows, ask, avoid);
    look_again(state, turn, key);
}

/// Watches the jobs that are left to the queries of a failed job.
pub(crate) fn watch_remaining_jobs(state: &mut State, turn: &mut Turn, queries: &[QueryKey], avoid: Avoid) {
    for query in queries {
        let left = state.queries.get(*query).map(|query| query.jobs.clone()).unwrap_or_default();
        for job in left {
            if state.jobs.get(job).is_some_and(|job| job.late) {
                hedge_job(state, turn, job, Ask::Again, Some(avoid));
            } else {
                look_again(state, turn, job);
            }
        }
    }
}

/// Reacts to a silence timer: moves queued batches away from a silent instance.
pub(crate) fn silence_timer_fired(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    let longest = longest_ahead(state, key);
    let Some(instance) = state.instances.get_mut(key) else { return };
    instance.watched = false;
    if !instance.holds_more_than_it_runs() {
        return;
    }
    if turn.behind > longest / 2 {
        // This process was away, and answers may not have been read yet.
        instance.heard = turn.now;
    }
    if turn.now.since(instance.heard) < longest {
        watch_silence(state, key);
        return;
    }
    instance.silent = true;
    refresh(state, turn, key);
    if move_ahead(state, turn, key) {
        state.instances.at_mut(key).watched = true;
        state.timers.set(turn.now + longest.max(LEAST), Timer::Silence(key));
    }
}

/// Moves queued batches of a silent instance. Returns whether some of them stay for now.
fn move_ahead(state: &mut State, turn: &mut Turn, key: InstanceKey) -> bool {
    let instance = state.instances.at(key);
    let behind: SmallVec<[JobKey; 16]> = instance.behind.iter().copied().collect();
    let (mut stays, mut pools) = (false, SmallVec::<[PoolKey; 2]>::new());
    for job in behind {
        let Some(Job { pool, rows, role: Role::Deployed | Role::Copy, .. }) = state.jobs.get(job) else {
            continue;
        };
        let (pool, mut rows) = (*pool, rows.clone());
        let of = state.pools.at(pool);
        if of.removed || !of.policy.hedges() {
            continue;
        }
        // Waiting copies may now use an instance that was reserved.
        if !pools.contains(&pool) {
            pools.push(pool);
        }
        let moves = |query: &Query| !query.withheld && is_held_up(state, query);
        rows.retain(|query| state.queries.get(*query).is_some_and(moves));
        if rows.is_empty() {
            continue;
        }
        if of.crowded() || usable_beside_holders(state, pool, rows[0]) == 0 {
            stays = true;
            continue;
        }
        state.pools.at_mut(pool).counters.moved += 1;
        add_extra(
            state,
            turn,
            pool,
            ExtraLine::Urgent,
            Extra { purpose: Purpose::Moved, ..Extra::copy(rows) },
        );
    }
    pools.into_iter().for_each(|pool| place_extras(state, turn, pool, ExtraLine::Urgent));
    stays
}
