//! Choice of an instance with room for a pool's query.
//!
//! If speeds differ, the fastest instance with a free slot comes first, although others have nothing to do: queries
//! would wait for it at a slower one.

use std::cmp::Reverse;

use crate::state::State;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::turn::Turn;

/// Returns an instance with room for a pool's query. If all homes are busy, it is the instance that its own
/// frontend released last, because that frontend goes round too and returns to this instance last.
pub(crate) fn next_with_room(state: &mut State, turn: &Turn, key: PoolKey) -> Option<InstanceKey> {
    let pool = state.pools.at_mut(key);
    let by_speed = pool.places_by_speed();
    // A batch is queued behind others only if no instance is idle.
    let ahead = pool.allowed_ahead() > 1;
    let (longest, pace, idle) = (pool.longest_pause(), &pool.pace, &mut pool.idle);
    let index = if by_speed && (idle.more_than(0) || !ahead) {
        let (instances, abroad) = (&state.instances, state.abroad > 0);
        let at = |index| instances.key_at(index).map(|instance| instances.at(instance));
        let fast = |index| Some(pace.is_fast(&at(index)?.serves(key)?.speed));
        let rank = |index| {
            let of = at(index).filter(|of| !ahead || of.jobs.is_empty())?;
            let speed = &of.serves(key)?.speed;
            let slower = if pace.is_fast(speed) { f32::MIN } else { speed.slower() };
            let held = of.jobs.len() + usize::from(of.elsewhere.jobs);
            let released = abroad.then_some(of.released_at);
            Some((slower, held > 0 || of.warm_at.is_some(), held, !of.elsewhere.home, released))
        };
        // The fastest take turns.
        let found = idle.find_empty(|index| fast(index) == Some(true)).or_else(|| idle.lowest(rank));
        found.into_iter().for_each(|found| idle.go_on_after(found));
        found.map(|found| found.index)
    } else if idle.more_than(0) {
        idle.next(|_| true)
    } else if state.abroad == 0 {
        // Of the next two, the one with fewer jobs: the query waits behind them.
        let instances = &state.instances;
        let mut lively = |index| {
            let instance = instances.key_at(index).map(|key| instances.at(key));
            instance.is_some_and(|instance| instance.is_lively(turn.now, longest))
        };
        let (first, second) = (idle.next(&mut lively), idle.next(&mut lively));
        let held =
            |index: &usize| instances.key_at(*index).map_or(usize::MAX, |key| instances.at(key).jobs.len());
        first.into_iter().chain(second).min_by_key(held)
    } else {
        let instances = &state.instances;
        let lively = |index: &usize| {
            let instance = instances.key_at(*index).map(|key| instances.at(key));
            instance.is_some_and(|instance| instance.is_lively(turn.now, longest))
        };
        let since = |index: &usize| {
            let instance = instances.key_at(*index).map(|key| instances.at(key));
            instance.map(|instance| {
                let held = instance.jobs.len() + usize::from(instance.elsewhere.jobs);
                // Instances in their slow start come after idle ones. Otherwise the fewest jobs come first.
                let idle = held == 0 && instance.warm_at.is_none();
                (idle, Reverse(held), instance.elsewhere.home, instance.released_at)
            })
        };
        idle.partial().filter(lively).max_by_key(since)
    };
    Some(state.instances.key_at(index?).expect("an instance with room exists"))
}
