//! Slow instances that have run nothing for a while.

use std::time::Duration;

use crate::state::State;
use crate::state::instance::Serves;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::turn::Turn;

/// The time without a run after which an instance that has just become slow gets a copy. It doubles with each copy.
const IDLE_FOR: Duration = Duration::from_millis(125);

/// The longest such time, as a power of two of the shortest: a second.
const DOUBLINGS: u8 = 3;

/// The longest such time in runs of the instance: where runs are long, a copy each second would be much work.
const RUNS: f64 = 40.0;

/// Whether an instance is slow, has nothing to do, and has run nothing for a while.
pub(crate) fn is_unexplored(state: &State, turn: &Turn, key: PoolKey, instance: InstanceKey) -> bool {
    let (pool, of) = (state.pools.at(key), state.instances.at(instance));
    let idle_for = |serves: &Serves| {
        let shortest = IDLE_FOR * (1 << serves.explored.min(DOUBLINGS));
        let run = if serves.explored < DOUBLINGS { 0.0 } else { pool.pace.usual(&serves.speed) };
        shortest.max(Duration::from_nanos((RUNS * run) as u64))
    };
    let waited = |serves: &Serves| serves.ran_at + idle_for(serves) <= turn.now;
    let is_due =
        |serves: &Serves| !pool.pace.is_fast(&serves.speed) && (serves.speed.may_be_well() || waited(serves));
    of.jobs.is_empty() && of.serves(key).is_some_and(is_due)
}
