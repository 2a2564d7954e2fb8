//! Exploration: an instance that gets no work because it is slow runs a copy now and then.
//!
//! Problem: a slow instance that is left idle shows no times, so it would stay slow for ever.
//!
//! Choice: when a query starts on a fast instance, and a slow one is idle and has run nothing for a while, the
//! slow one gets a copy. No client waits for it: it does not keep the query from being hedged or retried, its failure
//! does not count as an attempt, and it runs to its end after the query is answered, because its purpose is its time. It
//! starts on idle instances only and takes none of the hedge budget. A fast copy is followed by the next at once, and
//! three of them show that the instance is well. If frontends share instances, one reserves a slow instance for it.
//!
//! Rejected: a probe (it does not run the model); a share of the queries (a client would wait for each of them);
//! forgetting the speed after a while (clients would wait three times for each instance that is slow for good).
//!
//! Cold start: instances whose speed is unknown count as fast and get queries.

use std::time::Duration;

use crate::api::{Class, Role};
use crate::moves::start::{Start, start};
use crate::rules::turn::leaves_reserved;
use crate::rules::unexplored::is_unexplored;
use crate::state::State;
use crate::state::extra::Purpose;
use crate::state::keys::{JobKey, PoolKey};
use crate::state::tokens::Tokens;
use crate::turn::Turn;

/// The least time between two such copies of a pool: many slow instances must not double the work of a quiet one.
const APART: Duration = Duration::from_millis(100);

/// The largest copy, as a part of a run of usual size, with room for its error. A large one shows no more.
const LARGEST: f64 = 1.05;

/// Copies a job that has just started to an idle slow instance, if it is time for one.
pub(crate) fn explore(state: &mut State, turn: &mut Turn, key: PoolKey, job: JobKey) {
    let pool = state.pools.at(key);
    if !pool.places_by_speed()
        || !pool.policy.repeats()
        || turn.now < pool.explore_at
        || !leaves_reserved(state, turn, key)
    {
        return;
    }
    let (holder, size) = (state.jobs.at(job).instance, state.jobs.at(job).size);
    if pool.pace.of_usual(size) > LARGEST {
        return;
    }
    let is_due = |index: &usize| {
        let instance = state.instances.key_at(*index).filter(|instance| *instance != holder);
        instance.is_some_and(|instance| {
            let tokens = state.instances.at(instance).tokens.as_ref();
            !tokens.is_some_and(Tokens::are_reserved) && is_unexplored(state, turn, key, instance)
        })
    };
    let found = pool.idle.empty().find(is_due).and_then(|index| state.instances.key_at(index));
    let wait = if found.is_some() { APART } else { APART / 4 };
    state.pools.at_mut(key).explore_at = turn.now + wait;
    let Some(instance) = found else { return };
    let serves = state.instances.at_mut(instance).serves.iter_mut().find(|serves| serves.pool == key);
    serves.into_iter().for_each(|serves| serves.explored = serves.explored.saturating_add(1));
    let rows = state.jobs.at(job).rows.clone();
    state.pools.at_mut(key).counters.explored += 1;
    let purpose = Some(Purpose::Explore);
    start(state, turn, Start { pool: key, instance, role: Role::Copy, rows, class: Class::Spare, purpose });
}
