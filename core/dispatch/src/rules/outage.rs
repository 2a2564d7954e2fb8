//! Outages: no instance with the deployed model answers.
//!
//! Problem: a broken driver, network or rollout takes all instances of a model at once. Those that refuse connections
//! are known to be gone. Those that hang look busy, and each is ejected only after a timeout, because each alone may
//! have a straggler.
//!
//! Choice: a pool is out if no instance is usable, or if its instances are silent together. They are if each
//! holds a job, no prediction came for two usual times, and so many overdue jobs at the same time would be chance in
//! one case of a million. The chance of each instance is the share of runs that take as long as its oldest job has
//! (at least one in a thousand: rarer runs are not known). Jobs younger than two usual times say nothing: after a pause
//! the last prediction is old, and the runs of a burst are never independent. An idle instance takes the next query, or a
//! copy of a late one, and is judged by that. One that others fill, or that gives no token, counts a quarter if a query has
//! waited for two usual times. One instance is never silent, two only if their runs hardly vary, six after little more than
//! two usual times. The first prediction ends the outage.
//!
//! A pool is also out if each instance failed as often in a row as ejects it: ejection keeps a share of them in
//! service. Next to silent ones such an instance counts like a job older than any known run.
//!
//! Then stand-ins answer every query that accepts any outcome, at once. The bound on approximate answers does not
//! count these: it limits the price of fast answers, and in an outage all answers are approximate. Queries that accept only exact
//! answers wait for an instance as in an empty pool. Instances still receive queries, which show when they answer again.
//!
//! Only instances without the deployed model bridge an outage (`Serves::is_apart`): others are out as well.
//!
//! Rejected: ejected instances only (hung ones take seconds to eject, and the last of a pool is never ejected); a
//! number of overdue jobs (a pool of two has two stragglers each minute); a fixed time (models take from one to a
//! thousand milliseconds).
//!
//! Cold start: until run times are known, only a pool without a usable instance is out.

use std::time::Duration;

use crate::api::{Accept, Time, times};
use crate::rules::finish::expected_run;
use crate::state::State;
use crate::state::idle::Room;
use crate::state::instance::Instance;
use crate::state::keys::PoolKey;
use crate::state::pool::Pool;
use crate::state::query::Query;
use crate::turn::Turn;

/// Usual times without a prediction.
const SILENCE: f64 = 2.0;

/// The shortest time between two looks.
const LEAST: Duration = Duration::from_millis(5);

/// The chance of an instance whose job is older than any known run.
const RAREST: f64 = 1e-3;

/// The chance that an instance which other frontends fill serves none of this one's waiting queries in two usual times.
const UNSERVED: f64 = 0.25;

/// The chance below which instances are silent together.
const CHANCE: f64 = 1.000_001e-6;

/// The first time at which a pool's instances may be silent together; `None` while run times are unknown.
pub(crate) fn silent_from(pool: &Pool, now: Time) -> Option<Time> {
    let silence = times(pool.usual_service()?, SILENCE).max(LEAST);
    Some((pool.predicted_at + silence).max(now + LEAST))
}

/// Whether a query receives its stand-in's answer because no instance with the deployed model answers.
pub(crate) fn bridges(pool: &Pool, accept: Accept) -> bool {
    pool.outage_since.is_some() && accept == Accept::Any
}

/// Whether no instance with the deployed model answers.
pub(crate) fn is_out(state: &State, turn: &Turn, key: PoolKey) -> bool {
    let pool = state.pools.at(key);
    pool.usable == 0 || is_silent(state, turn, key)
}

fn is_silent(state: &State, turn: &Turn, key: PoolKey) -> bool {
    let pool = state.pools.at(key);
    let Some(usual) = pool.usual_service() else { return false };
    let silence = times(usual, SILENCE).max(LEAST);
    if turn.now.since(pool.predicted_at) < silence {
        return false;
    }
    let (mut all_fail, mut all, mut filled) = (true, 1.0, 0);
    for (_, instance) in state.instances.iter().filter(|(_, of)| of.usable()) {
        let Some(serves) = instance.serves(key).filter(|serves| serves.takes_queries()) else { continue };
        if serves.health.is_failing(&pool.settings.ejection) {
            all *= RAREST;
            continue;
        }
        all_fail = false;
        if !instance.jobs.is_empty() {
            all *= chance(state, turn, instance, silence);
        } else if instance.room() != Room::None {
            // It takes the next query, or a copy of a late one.
            return false;
        } else {
            filled += 1;
        }
    }
    if filled > 0 && waits_for(state, turn, key, silence) {
        all *= UNSERVED.powi(filled);
    }
    all_fail || all <= CHANCE
}

/// Whether a query has waited for an instance for so long.
fn waits_for(state: &State, turn: &Turn, key: PoolKey, long: Duration) -> bool {
    let waits = |query: &Query| query.pool == key && query.queued && turn.now.since(query.arrived) >= long;
    state.queries.iter().any(|(_, query)| waits(query))
}

/// The share of runs that take as long as the oldest job of an instance has by now; 1 if that is not long.
fn chance(state: &State, turn: &Turn, instance: &Instance, long: Duration) -> f64 {
    let longer = |key| {
        let job = state.jobs.get(key)?;
        let age = Some(turn.now.since(job.began)).filter(|age| *age >= long)?;
        let age = age.as_nanos() as f64 / expected_run(state, job)?;
        Some(state.pools.at(job.pool).pace.rest.longer_than(age).max(RAREST))
    };
    let running = instance.jobs.iter().copied().filter(|job| instance.runs(*job));
    running.filter_map(longer).fold(1.0, f64::min)
}
