//! Capacity check of ejections: whether the other instances can take the load.

use smallvec::SmallVec;

use crate::api::EjectionSettings;
use crate::state::State;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey};
use crate::turn::Turn;

/// Whether the least share of a pool's instances stays in service without a failing one. Those apart from the deployed
/// model replace each other only.
pub(crate) fn can_lose(state: &State, key: InstanceKey, pool_key: PoolKey) -> bool {
    let pool = state.pools.at(pool_key);
    let is_apart = |of: &Instance| !of.draining && of.serves(pool_key).is_some_and(Serves::is_apart);
    let (mut left, mut members) = (usable_without(state, key, pool_key), pool.members);
    if state.instances.get(key).is_some_and(is_apart) {
        let takes = |of: &Instance| of.usable() && of.serves(pool_key).is_some_and(Serves::takes_stand_ins);
        let apart: SmallVec<[bool; 8]> = state
            .instances
            .iter()
            .filter(|(_, of)| is_apart(of))
            .map(|(other, of)| other != key && takes(of))
            .collect();
        (left, members) = (apart.iter().filter(|takes| **takes).count() as u32, apart.len() as u32);
        if left == 0 {
            return false;
        }
    }
    f64::from(left) >= f64::from(members) * pool.settings.ejection.least_in_service.get()
}

/// Whether the other instances would not be too busy without a slow one.
pub(crate) fn can_spare(state: &State, turn: &Turn, key: InstanceKey) -> bool {
    let instance = state.instances.at(key);
    instance.serves.iter().filter(|own| own.data).all(|own| can_spare_of(state, turn, key, own.pool))
}

/// The same for one pool.
pub(crate) fn can_spare_of(state: &State, turn: &Turn, key: InstanceKey, pool_key: PoolKey) -> bool {
    let instance = state.instances.at(key);
    let Some(slots) = instance.serves(pool_key).map(|own| instance.slots_for(own)) else { return false };
    let lost = state.pools.at(pool_key).policy.lost_to_slowness();
    let weak = if lost > 0.0 { slow_beside(state, pool_key, key) } else { 0 };
    let pool = state.pools.at(pool_key);
    let left = pool.slots.saturating_sub(u32::from(slots));
    // Pools with few queries have no known times and count as idle.
    let busy = pool.busy(turn.now);
    left > 0
        // Otherwise it would be recalled at once.
        && pool.queue.waiting() <= left
        && busy <= (f64::from(left) - lost * f64::from(weak)) * pool.settings.ejection.max_utilisation.get()
}

/// The number of other usable instances of a pool.
pub(crate) fn usable_without(state: &State, key: InstanceKey, pool: PoolKey) -> u32 {
    let counted = state.instances.get(key).is_some_and(|instance| {
        instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries)
    });
    state.pools.at(pool).usable - u32::from(counted)
}

/// Usable slots of a pool at other instances whose last answer was slow.
fn slow_beside(state: &State, pool: PoolKey, key: InstanceKey) -> u32 {
    let slow = |instance: &Instance| {
        instance.usable()
            && instance.health.was_slow()
            && instance.serves(pool).is_some_and(|serves| serves.data)
    };
    let others = state.instances.iter().filter(|(other, instance)| *other != key && slow(instance));
    let slots = |of: &Instance| of.serves(pool).map_or(0, |serves| u32::from(of.slots_for(serves)));
    others.map(|(_, instance)| slots(instance)).sum()
}

/// The ejection settings of a pool's model on an instance. Those of the whole instance are the settings of its
/// first pool.
pub(crate) fn settings_of(state: &State, key: InstanceKey, of: Option<PoolKey>) -> EjectionSettings {
    let first = || Some(state.instances.get(key)?.serves.first()?.pool);
    let pool = of.or_else(first).and_then(|pool| state.pools.get(pool));
    pool.map(|pool| pool.settings.ejection.clone()).unwrap_or_default()
}
