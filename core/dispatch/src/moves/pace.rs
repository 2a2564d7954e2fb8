//! Learns how fast each instance is, from the runs that end.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Role, times};
use crate::measure::pace::Pace;
use crate::measure::speed::Speed;
use crate::moves::room::{recount_pools_of, refresh};
use crate::moves::watch::watch_jobs_of;
use crate::state::State;
use crate::state::job::Job;
use crate::state::keys::PoolKey;
use crate::turn::Turn;

/// The least part of the expected time that a job behind another must take to count as a run.
const SHORT: f64 = 0.125;

/// Whether a job's time is not that of a run: it waited at its instance behind another one, and the answers of both came
/// together. As the first time of its size it would make all later runs of that size seem slow.
fn came_along(pace: &Pace, speed: &Speed, job: &Job, took: Duration) -> bool {
    let least = pace.expected(speed, job.size).map(|expected| SHORT * expected);
    job.began > job.started && least.is_none_or(|least| (took.as_nanos() as f64) < least)
}

/// Learns from a run of the deployed model.
pub(crate) fn learn_pace(state: &mut State, turn: &Turn, job: &Job, took: Duration) {
    learn(state, turn, job, took, Pace::note);
}

/// Learns from a run how many jobs its instance runs best at a time.
pub(crate) fn learn_concurrency(state: &mut State, turn: &mut Turn, job: &Job, took: Duration) {
    let Some(instance) = state.instances.get_mut(job.instance) else { return };
    let Some(pace) = state.pools.get(job.pool).map(|pool| &pool.pace) else { return };
    let speed = instance.serves(job.pool).map(|serves| serves.speed);
    let held = instance.jobs.len() + 1;
    let Some(known) = &mut instance.concurrency else { return };
    let speed = speed.filter(|speed| !came_along(pace, speed, job, took));
    let Some(log) = speed.and_then(|speed| pace.residual(&speed, job.size, took)) else { return };
    known.note(job.beside.into(), held, log);
    let slots = known.limit();
    if std::mem::replace(&mut instance.slots, slots) != slots {
        instance.use_slots();
        watch_jobs_of(state, turn, job.instance);
        refresh(state, turn, job.instance);
        recount_pools_of(state, turn, job.instance);
    }
}

/// Learns what a batch of so many rows takes.
pub(crate) fn learn_batch(state: &mut State, job: &Job, took: Duration) {
    let Some(instance) = state.instances.get(job.instance) else { return };
    let sharers = instance.tokens.as_ref().map_or(1, |tokens| tokens.sharers());
    let speed = instance.serves(job.pool).map_or_else(Speed::default, |serves| serves.speed);
    let slower = speed.slower();
    let Some(pool) = state.pools.get_mut(job.pool) else { return };
    if came_along(&pool.pace, &speed, job, took) {
        return;
    }
    pool.sharers = sharers;
    let (rows, took) = (job.rows.len(), times(took, f64::from(slower).exp().recip()));
    let Some(padding) = pool.padding.as_deref_mut().filter(|_| job.padded) else {
        pool.curve.note(rows, took);
        return;
    };
    padding.note(rows, job.size, took);
    pool.curve.note_padded(rows, times(took, padding.of_usual(rows, job.size.into()).recip()));
}

/// Learns from a run that was cancelled at this age.
pub(crate) fn learn_cancelled(state: &mut State, turn: &Turn, job: &Job, age: Duration) {
    learn(state, turn, job, age, Pace::note_cancelled);
}

fn learn(
    state: &mut State,
    turn: &Turn,
    job: &Job,
    took: Duration,
    note: fn(&mut Pace, &mut Speed, u32, Duration) -> bool,
) {
    if !matches!(job.role, Role::Deployed | Role::Copy) {
        return;
    }
    let Some(instance) = state.instances.get_mut(job.instance) else { return };
    let took = match &instance.concurrency {
        // Company makes a run longer, and no instance slower.
        Some(known) => times(took, known.slower(job.beside).recip()),
        None => took,
    };
    let Some(own) = instance.serves.iter_mut().find(|serves| serves.pool == job.pool) else { return };
    let Some(pool) = state.pools.get_mut(job.pool) else { return };
    if came_along(&pool.pace, &own.speed, job, took) {
        return;
    }
    let changed = note(&mut pool.pace, &mut own.speed, job.size, took);
    if pool.pace.is_fast(&own.speed) {
        own.explored = 0;
    }
    if own.speed.may_be_well() {
        pool.explore_at = turn.now;
    }
    if changed || pool.pace.is_stale(pool.members) {
        compare(state, job.pool);
    }
}

/// Compares the speeds of all instances of a pool.
fn compare(state: &mut State, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    let speeds = state.instances.iter().filter_map(|(_, instance)| instance.serves(key));
    let mut means: SmallVec<[f32; 32]> = speeds.filter_map(|serves| serves.speed.mean()).collect();
    pool.pace.compare(&mut means);
    let (median, deviation) = (pool.pace.median(), pool.pace.deviation());
    let mut span: Option<(f32, f32)> = None;
    let (mut capacity, mut count) = (0.0, 0.0);
    for instance in state.instances.keys() {
        let instance = state.instances.at_mut(instance);
        let usable = instance.usable();
        let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == key) else { continue };
        serves.speed.compare(median, deviation);
        if usable && serves.takes_queries() {
            let own = serves.speed.slower();
            capacity += if own == 0.0 { 1.0 } else { (-own).exp() };
            count += 1.0;
            span = Some(span.map_or((own, own), |(low, high)| (low.min(own), high.max(own))));
        }
    }
    if let Some((low, high)) = span {
        state.pools.at_mut(key).pace.span(low, high, capacity / count);
    }
}
