//! Sets when a batch of a pool may start.

use std::time::Duration;

use crate::rules::batching::{longest_wait, may_be_served, readiness};
use crate::state::State;
use crate::state::keys::PoolKey;
use crate::state::pool::Pool;
use crate::turn::Turn;

/// Notes the time that a query has until its deadline, unless no batch could serve it.
pub(crate) fn note_deadline(pool: &mut Pool, within: Duration) {
    if may_be_served(pool, within) {
        pool.deadlines.note(within);
    }
}

/// Sets the readiness of a pool without a fixed size of batches, as the load demands. Its queue is placed next.
pub(crate) fn resize_batches(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    if pool.in_force.batch.max_size.fixed().is_none() {
        pool.readiness = readiness(pool, turn);
    } else if !pool.in_force.batch.max_delay.is_zero() {
        pool.readiness.wait = pool.in_force.batch.max_delay.min(longest_wait(pool));
    }
}

/// The same after the last job of a pool: nothing waits for company in an idle pool.
pub(crate) fn resize_when_idle(state: &mut State, turn: &Turn, key: PoolKey) {
    if let Some(pool) = state.pools.get(key)
        && pool.in_force.batch.max_size.fixed().is_none()
        && pool.running == 0
        && pool.queue.waiting() > 0
    {
        resize_batches(state, turn, key);
        state.unplaced.push(key);
    }
}
