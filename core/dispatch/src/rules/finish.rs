//! Expected finish: where a query ends first, and how much sooner another instance would answer it.
//!
//! Problem: an idle instance that is 2.4 times slower answers a query after 48 ms. A faster one that is busy for 8 ms
//! more answers it after 28. With a queue of five it does not, and the slow instance should help. And a copy of a run
//! that needs 7 ms more is wasted if it takes 20.
//!
//! Choice: everything is compared by its expected finish. A free instance runs now. A busy one first ends what it
//! holds, which takes the expected rest of its run. A slow instance stays idle while the last waiting query is
//! expected to end sooner at the faster ones, one after another. Then the last query takes it, because the older
//! ones are served first by the faster instances. A timer looks again when the faster instance should be free.
//!
//! An overdue run has its mean residual life left, never "any moment now": otherwise a hung instance would keep a
//! slow idle one waiting.
//!
//! Rejected: a factor above which an instance is avoided (at 0.7 of the capacity slow ones are needed, at half they
//! are not); the k-th query before the first on the slow instance with the first in line (the oldest would get the
//! longest run).
//!
//! Cold start: without known times nothing is compared, instances take turns, and copies need no gain.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Role, Time};
use crate::state::State;
use crate::state::idle::Room;
use crate::state::instance::Instance;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, PoolKey, QueryKey};
use crate::state::pool::Pool;
use crate::turn::Turn;

/// The shortest wait for a faster instance, as a part of the run on the slow one.
const LEAST: f64 = 1.0 / 32.0;

/// The share of busy instances that counts at most: beyond it, waits have no mean.
const FULL: f64 = 0.95;

/// The expected nanoseconds of a new run of a pool's model on an instance, chance included.
pub(crate) fn run_at(pool: &Pool, key: PoolKey, instance: &Instance, rows: usize) -> Option<f64> {
    let speed = &instance.serves(key)?.speed;
    Some(pool.pace.expected(speed, rows)? * pool.pace.rest.mean())
}

/// The expected nanoseconds until a job ends; infinite if it is older than any run before. `None` while times are
/// unknown.
pub(crate) fn rest_of(state: &State, turn: &Turn, key: JobKey) -> Option<f64> {
    let Some(job) = state.jobs.get(key) else { return Some(f64::INFINITY) };
    let Some(instance) = state.instances.get(job.instance) else { return Some(f64::INFINITY) };
    let pool = state.pools.at(job.pool);
    let speed = &instance.serves(job.pool)?.speed;
    let share =
        if matches!(job.role, Role::StandIn(_)) { pool.stand_in_cost().of(job.rows.len()) } else { 1.0 };
    let expected = pool.pace.expected(speed, rows_of(job))? * share;
    let age = turn.now.since(job.began).as_nanos() as f64;
    if instance.runs(key) {
        return Some(expected * pool.pace.rest.after(age / expected)?);
    }
    // It waits behind others, and has all of its run left.
    Some(expected * pool.pace.rest.mean() + wait_at(state, turn, instance)?)
}

/// The rows of a job. A parity has those of a member, of which the job knows none.
fn rows_of(job: &Job) -> usize {
    job.rows.len().max(1)
}

/// The expected nanoseconds until an instance has ended one of its jobs: 0 if it has room, and `None` if other
/// frontends use it.
fn wait_at(state: &State, turn: &Turn, instance: &Instance) -> Option<f64> {
    if instance.jobs.len() < usize::from(instance.slots_told()) {
        return (instance.room() != Room::None).then_some(0.0);
    }
    // Those that wait behind others do not free it.
    let running = instance.jobs.iter().filter(|job| instance.runs(**job));
    running.filter_map(|job| rest_of(state, turn, *job)).min_by(f64::total_cmp)
}

/// The time until which a pool's queries should wait for faster instances instead of running on this one.
pub(crate) fn waits_for_faster(state: &State, turn: &Turn, key: PoolKey, own: InstanceKey) -> Option<Time> {
    let pool = state.pools.at(key);
    if !pool.places_by_speed() || pool.allowed_ahead() > 1 || pool.backlogged() {
        return None;
    }
    let speed = &state.instances.at(own).serves(key)?.speed;
    if pool.pace.is_fast(speed) {
        return None;
    }
    let rows = usize::from(pool.in_force.batch.max_size.get()).min(pool.queue.waiting().max(1) as usize);
    let here = run_at(pool, key, state.instances.at(own), rows)?;
    let mut faster: SmallVec<[(f64, f64); 16]> = SmallVec::new();
    for (other, instance) in state.instances.iter() {
        let Some(serves) = instance.serves(key).filter(|serves| serves.takes_queries()) else { continue };
        if other == own || !instance.usable() || instance.silent || serves.speed.slower() >= speed.slower() {
            continue;
        }
        let (Some(wait), Some(run)) = (wait_at(state, turn, instance), run_at(pool, key, instance, rows))
        else {
            continue;
        };
        if wait.is_finite() && wait + run < here {
            faster.push((wait + run, wait));
        }
    }
    let place = (pool.queue.waiting().max(1) as usize - 1) / rows.max(1);
    faster.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let (_, wait) = faster.get(place)?;
    Some(turn.now + Duration::from_nanos(wait.max(here * LEAST) as u64))
}

/// The expected nanoseconds until an instance without these queries would have answered them.
fn elsewhere(state: &State, turn: &Turn, key: PoolKey, query: QueryKey, rows: usize) -> Option<(f64, f64)> {
    let pool = state.pools.at(key);
    let holders: SmallVec<[InstanceKey; 2]> = state
        .queries
        .get(query)?
        .jobs
        .iter()
        .filter_map(|job| state.jobs.get(*job))
        .map(|job| job.instance)
        .collect();
    if !pool.pace.is_uneven() && pool.idle.more_than(holders.len() as u32) {
        return Some((0.0, pool.pace.fastest(rows)? * pool.pace.rest.mean()));
    }
    let mut best: Option<(f64, f64)> = None;
    for (other, instance) in state.instances.iter() {
        let takes = instance.usable() && instance.serves(key).is_some_and(|serves| serves.takes_queries());
        if !takes || holders.contains(&other) {
            continue;
        }
        let (Some(wait), Some(run)) = (wait_at(state, turn, instance), run_at(pool, key, instance, rows))
        else {
            continue;
        };
        if best.is_none_or(|best| wait + run < best.0 + best.1) {
            best = Some((wait, run));
        }
    }
    best
}

/// The wait that a run adds to the queries of others, in runs. While all instances are busy, each further run delays
/// the queries that arrive until one is idle again: of `n` instances of which a share `u` is busy, `u / (1 - u)`
/// queries, each by `1 / n` of a run.
fn congestion(state: &State, turn: &Turn, key: PoolKey) -> f64 {
    let pool = state.pools.at(key);
    let slots = f64::from(pool.slots.max(1)) * pool.pace.capacity();
    let busy = (pool.busy(turn.now) / slots).min(FULL);
    busy / (1.0 - busy) / slots
}

/// Whether a job runs at a slow instance and is not older than it was expected to become.
fn is_known_slow(state: &State, turn: &Turn, key: JobKey) -> bool {
    let slow = || {
        let job = state.jobs.get(key)?;
        let speed = &state.instances.get(job.instance)?.serves(job.pool)?.speed;
        let pace = &state.pools.at(job.pool).pace;
        let age = turn.now.since(job.began).as_nanos() as f64;
        Some(!pace.is_fast(speed) && age < pace.expected(speed, rows_of(job))?)
    };
    slow().unwrap_or_default()
}

/// The gain of a copy of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    /// The time that it saves, in runs. Infinite if the query's jobs hang.
    pub(crate) runs: f64,
    /// The rest of a run that a copy must exceed, in nanoseconds.
    pub(crate) least: f64,
}

/// The gain of a copy of a query; `None` while that is unknown.
pub(crate) fn gain(state: &State, turn: &Turn, query: QueryKey) -> Option<Gain> {
    let of = state.queries.get(query)?;
    let rests = of.jobs.iter().map(|job| Some((rest_of(state, turn, *job)?, *job)));
    let rests = rests.collect::<Option<SmallVec<[_; 2]>>>()?;
    let (rest, job) = rests.into_iter().min_by(|one, other| one.0.total_cmp(&other.0))?;
    let rows = of.jobs.iter().filter_map(|job| state.jobs.get(*job)).map(rows_of).min()?;
    let (wait, run) = elsewhere(state, turn, of.pool, query, rows)?;
    let usual = state.pools.at(of.pool).pace.fastest(rows)?;
    // A run on a slow instance was placed there knowing how long it takes. Until then a copy must save the run that
    // it costs.
    let cost = if is_known_slow(state, turn, job) { run } else { 0.0 };
    let least = wait + run + cost + run * congestion(state, turn, of.pool);
    Some(Gain { runs: (rest - least) / usual, least })
}

/// Whether a query would be answered sooner by a run that starts on an instance now.
pub(crate) fn helps(
    state: &State,
    turn: &Turn,
    key: PoolKey,
    query: QueryKey,
    instance: InstanceKey,
) -> bool {
    let Some(of) = state.queries.get(query) else { return false };
    let rests = of.jobs.iter().map(|job| rest_of(state, turn, *job)).collect::<Option<SmallVec<[f64; 2]>>>();
    let Some(rest) = rests.and_then(|rests| rests.into_iter().min_by(f64::total_cmp)) else { return true };
    let rows = of.jobs.iter().filter_map(|job| state.jobs.get(*job)).map(rows_of).min().unwrap_or(1);
    run_at(state.pools.at(key), key, state.instances.at(instance), rows).is_none_or(|run| run < rest)
}
