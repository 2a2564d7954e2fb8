//! Expected finish: the instance on which a query ends first.
//!
//! Problem: an idle instance that is 2.4 times slower answers a query after 48 ms. A faster one that is busy for 8 ms
//! more answers it after 28. With a queue of five it does not, and the slow instance should help.
//!
//! Choice: instances are compared by the expected finish of a query. A free instance runs now. A busy one first ends
//! its jobs, which takes the expected rest of its run. A slow instance stays idle while each waiting query,
//! the last too, has a faster one that ends it sooner. Then the last query takes it, because the older ones are served
//! first by the faster instances. A timer looks again when that faster one should be free. With more waiting queries
//! than slots nothing is compared.
//!
//! A query waits at most for one run on the slow instance, and less if that one would then miss its deadline. The
//! faster ones may serve other models or more urgent queries first, or hang. Then the slow instance takes the oldest
//! query.
//!
//! An overdue run has its mean residual life left, or no end if none ran so long: otherwise a hung instance would keep
//! a slow idle one waiting.
//!
//! Several frontends: an instance used by another has half a run left. With tokens, the others' queues are estimated
//! from ours and the load.
//!
//! Rejected: a factor above which an instance is avoided (at 0.7 of the capacity slow ones are needed, at half they
//! are not); the k-th query before the first on the slow instance with the first in line (the oldest would get the
//! longest run); the others' queues as long as ours (it sent twelve times as many queries to a slow instance as one
//! frontend does); the true rest of the others' runs, reported by workers (it gained nothing).
//!
//! Cold start: without known times nothing is compared, and instances take turns.

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::{Role, Time};
use crate::state::State;
use crate::state::idle::Room;
use crate::state::instance::{Instance, Serves};
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, PoolKey};
use crate::state::pool::Pool;
use crate::turn::Turn;

/// The shortest wait for a faster instance, as a part of the run on the slow one.
const LEAST: f64 = 1.0 / 32.0;

/// The rest of a run for another frontend, as a part of that run: on average half of it is left.
const UNSEEN: f64 = 0.5;

/// The time that a query must have left for a run on the slow instance, in runs.
const MARGIN: f64 = 1.25;

/// The shortest wait: a timer that is due at once would never end.
const SHORTEST: Duration = Duration::from_micros(1);

/// The expected nanoseconds of a new run of a pool's model on an instance, chance included.
pub(crate) fn run_at(pool: &Pool, key: PoolKey, instance: &Instance, size: u32) -> Option<f64> {
    let speed = &instance.serves(key)?.speed;
    Some(pool.pace.expected(speed, size)? * pool.pace.rest.mean())
}

/// The expected nanoseconds of the run of a job, among those that began with it.
pub(crate) fn expected_run(state: &State, job: &Job) -> Option<f64> {
    let instance = state.instances.get(job.instance)?;
    let speed = &instance.serves(job.pool)?.speed;
    let alone = state.pools.at(job.pool).pace.expected(speed, job.size)?;
    Some(instance.concurrency.as_ref().map_or(alone, |known| alone * known.slower(job.beside)))
}

/// The expected nanoseconds until a job ends; infinite if it is older than any run before. `None` while times are
/// unknown.
pub(crate) fn rest_of(state: &State, turn: &Turn, key: JobKey) -> Option<f64> {
    let Some(job) = state.jobs.get(key) else { return Some(f64::INFINITY) };
    let Some(instance) = state.instances.get(job.instance) else { return Some(f64::INFINITY) };
    let pool = state.pools.at(job.pool);
    let apart = instance.serves(job.pool).is_some_and(Serves::is_apart);
    let cost = || pool.stand_in_cost_at(apart).of(job.rows.len());
    let share = if matches!(job.role, Role::StandIn(_)) { cost() } else { 1.0 };
    let expected = expected_run(state, job)? * share;
    let age = turn.now.since(job.began).as_nanos() as f64;
    if instance.runs(key) {
        return Some(expected * pool.pace.rest.after(age / expected)?);
    }
    // It waits behind others, and has all of its run left.
    Some(expected * pool.pace.rest.mean() + wait_at(state, turn, job.pool, instance)?)
}

/// The expected nanoseconds until an instance has ended one of its jobs: 0 if it has room.
pub(crate) fn wait_at(state: &State, turn: &Turn, key: PoolKey, instance: &Instance) -> Option<f64> {
    if instance.can_begin() && instance.serves(key).is_none_or(|serves| instance.has_place_for(serves)) {
        if instance.room() != Room::None {
            return Some(0.0);
        }
        return Some(run_at(state.pools.at(key), key, instance, 1)? * UNSEEN);
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
    let size = size_of_next(state, pool);
    let here = run_at(pool, key, state.instances.at(own), size)?;
    if is_overdue(state, turn, key, here) {
        return None;
    }
    let mut faster: SmallVec<[(f64, f64); 16]> = SmallVec::new();
    for (other, instance) in state.instances.iter() {
        let Some(serves) = instance.serves(key).filter(|serves| serves.takes_queries()) else { continue };
        if other == own || !instance.usable() || instance.silent || serves.speed.slower() >= speed.slower() {
            continue;
        }
        let (Some(wait), Some(run)) =
            (wait_at(state, turn, key, instance), run_at(pool, key, instance, size))
        else {
            continue;
        };
        if wait.is_finite() && wait + run < here {
            faster.push((wait + run, wait));
        }
    }
    let tokens = state.instances.at(own).tokens.as_ref();
    let frontends = tokens.map_or(1, |tokens| usize::from(tokens.sharers().max(1)));
    let waiting = waiting_everywhere(pool.queue.waiting(), frontends, pool.utilisation(turn.now));
    let place = (waiting.round() as usize - 1) / rows_of_next(pool);
    faster.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let (_, wait) = faster.get(place)?;
    let until = turn.now + Duration::from_nanos(wait.max(here * LEAST) as u64);
    let longest = waits_until(state, turn, key, here);
    Some(longest.map_or(until, |longest| until.min(longest)).max(turn.now + SHORTEST))
}

/// The queries that probably wait at all frontends together, if so many wait here and this frontend alone makes this
/// use of the instances.
///
/// The length of a queue is geometric, and each query is at any frontend with the same chance. Given those here, the
/// others follow a negative binomial distribution, whose mean this adds.
fn waiting_everywhere(here: u32, frontends: usize, utilisation: f64) -> f64 {
    let (here, frontends) = (f64::from(here.max(1)), frontends as f64);
    let elsewhere = (utilisation * frontends).min(1.0) * (frontends - 1.0) / frontends;
    here + (here + 1.0) * elsewhere / (1.0 - elsewhere)
}

/// The time until which the oldest query of a pool may wait for faster instances, if a slow one needs so many
/// nanoseconds: as long as a run, and no longer than the slow one could still answer in time.
fn waits_until(state: &State, turn: &Turn, key: PoolKey, run: f64) -> Option<Time> {
    let pool = state.pools.at(key);
    let longest = pool.queue.ready_at(pool.readiness)? + nanos(run);
    let oldest = pool.queue.iter().filter_map(|query| state.queries.get(query)).min_by_key(|of| of.arrived);
    let left = oldest.map(|of| of.deadline.since(turn.now)).filter(|left| *left >= nanos(run));
    let least = left.map(|left| turn.now + left.saturating_sub(nanos(MARGIN * run)));
    Some(least.map_or(longest, |least| longest.min(least)))
}

fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

/// The rows of the next batch of a pool.
fn rows_of_next(pool: &Pool) -> usize {
    usize::from(pool.readiness.rows).min(pool.queue.waiting().max(1) as usize)
}

/// The size of the next batch of a pool, if its queries are like the oldest one.
fn size_of_next(state: &State, pool: &Pool) -> u32 {
    let oldest = pool.queue.iter().find_map(|query| state.queries.get(query));
    oldest.map_or(1, |query| query.size.max(1)).saturating_mul(rows_of_next(pool) as u32)
}

/// Whether the oldest query of a pool should wait for faster instances no longer.
fn is_overdue(state: &State, turn: &Turn, key: PoolKey, run: f64) -> bool {
    waits_until(state, turn, key, run).is_some_and(|until| until <= turn.now)
}

/// Whether a slow instance takes the last query of a pool and not the oldest, which faster ones serve sooner.
pub(crate) fn takes_last(state: &State, turn: &Turn, key: PoolKey, own: InstanceKey) -> bool {
    let pool = state.pools.at(key);
    if !pool.places_by_speed() || pool.backlogged() {
        return false;
    }
    let instance = state.instances.at(own);
    let slow = instance.serves(key).is_some_and(|serves| !pool.pace.is_fast(&serves.speed));
    let run = run_at(pool, key, instance, size_of_next(state, pool));
    slow && !run.is_some_and(|run| is_overdue(state, turn, key, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_other_frontends_follow_load_and_own_queue() {
        let of_three = |here, load: f64| waiting_everywhere(here, 3, load / 3.0);
        assert_eq!(waiting_everywhere(4, 1, 0.7), 4.0, "there is no other frontend");
        assert_eq!(of_three(4, 0.0), 4.0);
        assert!((of_three(4, 0.75) - 9.0).abs() < 1e-9, "{}", of_three(4, 0.75));
        assert!((of_three(4, 1.0) - 14.0).abs() < 1e-9 && of_three(4, 9.0) == of_three(4, 1.0));
    }
}
