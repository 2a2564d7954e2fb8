//! Choice of an instance with room for a pool's query.

use std::cmp::Reverse;

use crate::state::State;
use crate::state::keys::{InstanceKey, PoolKey};
use crate::turn::Turn;

/// Returns an instance with room for a pool's query. If all homes are busy, it is the instance that its own
/// frontend released last, because that frontend goes round too and returns to this instance last.
pub(crate) fn next_with_room(state: &mut State, turn: &Turn, key: PoolKey) -> Option<InstanceKey> {
    let pool = state.pools.at_mut(key);
    let by_speed = pool.places_by_speed();
    let (longest, pace, idle) = (pool.longest_pause(), &pool.pace, &mut pool.idle);
    let index = if by_speed && idle.more_than(0) {
        let instances = &state.instances;
        let own = |index| instances.key_at(index).and_then(|instance| instances.at(instance).serves(key));
        // The fastest take turns.
        idle.next(|index| own(index).is_some_and(|own| pace.is_fast(&own.speed))).or_else(|| {
            let found = idle.lowest(|index| own(index).map(|own| own.speed.slower()))?;
            idle.go_on_after(found);
            Some(found.index)
        })
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
