//! Gain of a copy: how much sooner another instance would answer a query.
//!
//! Problem: a copy of a run that needs 7 ms more is wasted if it takes 20, and it makes others wait.
//!
//! Choice: a copy saves the expected rest of the query's first job to end, less the wait and the run on the best other
//! instance, and less the wait that it adds to other queries. A run on a slow instance was placed there knowing how long
//! it takes: until that time a copy must also save the run that it costs.
//!
//! Rejected: a gain without that cost (copies of runs on two slow hosts of twelve raised the gap at load 0.7 from 21 to
//! 30 ms); no copies at all of runs on slow instances (an instance that is five times slower for two seconds kept its
//! queries, and the gap at 0.7 rose from 37 to 78 ms).
//!
//! Cold start: the gain is unknown, and copies need none.

use smallvec::SmallVec;

use crate::rules::finish::{expected_run, rest_of, run_at, wait_at};
use crate::state::State;
use crate::state::keys::{InstanceKey, JobKey, PoolKey, QueryKey};
use crate::state::query::Query;
use crate::turn::Turn;

/// The share of busy instances that counts at most: beyond it, waits have no mean.
const FULL: f64 = 0.95;

/// The expected nanoseconds until an instance without these queries would have answered them.
fn elsewhere(state: &State, turn: &Turn, key: PoolKey, query: QueryKey, size: u32) -> Option<(f64, f64)> {
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
        return Some((0.0, pool.pace.fastest(size)? * pool.pace.rest.mean()));
    }
    let mut best: Option<(f64, f64)> = None;
    for (other, instance) in state.instances.iter() {
        let takes = instance.usable() && instance.serves(key).is_some_and(|serves| serves.takes_queries());
        if !takes || holders.contains(&other) {
            continue;
        }
        let (Some(wait), Some(run)) =
            (wait_at(state, turn, key, instance), run_at(pool, key, instance, size))
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
        Some(!pace.is_fast(speed) && age < expected_run(state, job)?)
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
    let (rest, job) = first_to_end(state, turn, of)?;
    let size = size_beside(state, of);
    let (wait, run) = elsewhere(state, turn, of.pool, query, size)?;
    let usual = state.pools.at(of.pool).pace.fastest(size)?;
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
    let Some((rest, _)) = first_to_end(state, turn, of) else { return true };
    let (pool, instance) = (state.pools.at(key), state.instances.at(instance));
    run_at(pool, key, instance, size_beside(state, of)).is_none_or(|run| run < rest)
}

/// The job of a query that is expected to end first, and its rest in nanoseconds; `None` if any is unknown.
fn first_to_end(state: &State, turn: &Turn, query: &Query) -> Option<(f64, JobKey)> {
    let rests = query.jobs.iter().map(|job| Some((rest_of(state, turn, *job)?, *job)));
    let rests = rests.collect::<Option<SmallVec<[_; 2]>>>()?;
    rests.into_iter().min_by(|one, other| one.0.total_cmp(&other.0))
}

/// The size of the smallest job of a query, which a copy would have.
fn size_beside(state: &State, query: &Query) -> u32 {
    query.jobs.iter().filter_map(|job| state.jobs.get(*job)).map(|job| job.size).min().unwrap_or(1)
}
