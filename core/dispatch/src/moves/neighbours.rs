//! Sharing of instances without tokens: the jobs of other frontends count as held.
//!
//! Problem: foreign servers (Triton, MLServer) accept every request. Frontends that know only their own jobs send
//! to the same instance while others are idle, and the tail grows with every frontend. Prequal asks servers for
//! their requests in flight; these servers cannot tell (Triton's pending count excludes running requests), and
//! answers come too late.
//!
//! Choice: frontends tell each other which jobs they hold, and the driver reports it. An instance has room while
//! all jobs together leave any, so waiting work stays here, where it can go to the first free instance. Reports
//! are late by a message, so collisions are possible. Therefore each instance is *home* to one frontend, which
//! uses it first. Another frontend uses it when its own are busy, and chooses the one released longest ahead of
//! its owner's next use. Optional work (copies, early stand-ins) counts only homes as idle.
//!
//! A busy frontend would keep an instance forever, because its own queries come first whenever a job ends. So work
//! that waited for the time of a batch goes to the instances with the fewest jobs, one job each, whatever other
//! frontends hold.
//!
//! Rejected: partitioning instances (the tail of a third of a pool is much longer); asking a neighbour before each
//! job (a round trip for every query, and no answer while a neighbour is down).

use std::time::Duration;

use crate::rules::waiting::has_pressing_work;
use crate::state::State;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::timers::Timer;
use crate::turn::Turn;

/// The wait for neighbours while service times are unknown.
const COLD: Duration = Duration::from_millis(10);

/// The shortest wait: a timer for every run of a model of microseconds would cost more than it gains.
const LEAST: Duration = Duration::from_millis(1);

/// Limits the wait of the pools of an instance for other frontends.
pub(crate) fn limit_neighbour_waits_of(state: &mut State, turn: &Turn, key: InstanceKey) {
    for index in 0..state.instances.at(key).serves.len() {
        let pool = state.instances.at(key).serves[index].pool;
        if state.crowded > 0 && has_pressing_work(state, pool) {
            limit_neighbour_wait(state, turn, pool);
        }
    }
}

/// Limits the wait of a pool for other frontends.
pub(crate) fn limit_neighbour_wait(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    if state.crowded > 0 && !std::mem::replace(&mut pool.bears_neighbours, true) {
        let patience = pool.service.reading().map_or(COLD, |reading| reading.median.max(LEAST));
        state.timers.set(turn.now + patience, Timer::Neighbours(key));
    }
}
