//! Counts of a pool: its usable instances, and their room.

use crate::api::Time;
use crate::moves::hold::surrender;
use crate::rules::outage::silent_from;
use crate::state::State;
use crate::state::idle::Room;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Updates an instance's room in its pools.
pub(crate) fn refresh(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    surrender(state, turn, key);
    let instance = state.instances.at(key);
    let room = instance.room();
    for serves in &instance.serves {
        let room = if instance.has_place_for(serves) { room } else { Room::None };
        let pool = state.pools.at_mut(serves.pool);
        pool.idle.set(key.index(), if serves.takes_queries() { room } else { Room::None });
        pool.redundancy_idle.set(key.index(), if serves.takes_redundancy() { room } else { Room::None });
        let apart = serves.is_apart() && serves.takes_stand_ins();
        pool.apart_idle.set(key.index(), if apart { room } else { Room::None });
    }
}

/// Removes an instance's room from its pools until the next refresh.
pub(crate) fn withdraw(state: &mut State, key: InstanceKey) {
    for serves in &state.instances.at(key).serves {
        let pool = state.pools.at_mut(serves.pool);
        for idle in [&mut pool.idle, &mut pool.redundancy_idle, &mut pool.apart_idle] {
            idle.set(key.index(), Room::None);
        }
    }
}

/// Divides a pool's instances between queries and redundancy, and counts those for queries. Its waiting work is placed
/// at the end of the event if an instance takes more of it than before, or if no instance is left and a slow one may
/// have to return.
pub(crate) fn recount(state: &mut State, turn: &mut Turn, key: PoolKey) {
    let Some(pool) = state.pools.get(key) else { return };
    let serve =
        |instance: &Instance| instance.serves(key).is_some_and(|s| s.deployed || s.parity || s.backup);
    let all = state.instances.iter().filter(|(_, instance)| !instance.draining && serve(instance));
    let mut kept = pool.policy.dedicated(all.count() as u32);

    // Instances without the deployed model are kept for redundancy first, then those that joined last.
    let mut serving: Vec<(bool, InstanceKey)> = state
        .instances
        .iter()
        .filter(|(_, value)| serve(value))
        .filter_map(|(instance, value)| Some((value.serves(key)?.deployed, instance)))
        .collect();
    serving.sort_unstable_by_key(|(deployed, instance)| (*deployed, std::cmp::Reverse(instance.index())));
    let runs_queries = |(deployed, instance): &(bool, InstanceKey)| {
        let of = state.instances.at(*instance);
        *deployed && of.usable() && of.serves(key).is_some_and(|serves| serves.health.in_service())
    };
    let stays = |(_, instance): &&(bool, InstanceKey)| !state.instances.at(*instance).draining;
    // If all other instances are out of service, those kept for redundancy run queries: there is nothing to protect.
    if !serving.iter().filter(stays).skip(kept as usize).any(runs_queries) {
        kept = 0;
    }
    let splits = kept > 0;
    let (mut usable, mut slots, mut slow, mut members) = (0, 0, 0, 0);
    let mut gains = false;
    for (deployed, instance_key) in serving {
        let instance = state.instances.at_mut(instance_key);
        let keep = kept > 0 && !instance.draining;
        kept -= u32::from(keep);
        let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == key) else { continue };
        let before = (serves.data, serves.redundancy);
        serves.data = deployed && !keep;
        serves.redundancy = (keep || !splits) && (serves.parity || serves.backup);
        gains |= serves.data && !before.0 || serves.redundancy && !before.1;
        let (data, takes, own) = (serves.data, serves.takes_queries(), *serves);
        members += u32::from(data && !instance.draining);
        if takes && instance.usable() {
            usable += 1;
            slots += u32::from(instance.slots_for(&own));
        }
        slow += u32::from(takes && instance.slow_only());
        refresh(state, turn, instance_key);
    }
    let takes_stand_ins = |of: &Instance| {
        of.usable() && of.serves(key).is_some_and(|serves| serves.is_apart() && serves.takes_stand_ins())
    };
    let apart = state.instances.iter().filter(|(_, instance)| takes_stand_ins(instance)).count() as u32;
    let runs_redundancy = |of: &Instance| of.usable() && of.serves(key).is_some_and(Serves::is_kept);
    let kept = state.instances.iter().filter(|(_, instance)| runs_redundancy(instance)).count() as u32;
    let pool = state.pools.at_mut(key);
    pool.kept = kept;
    let returns = pool.usable == 0 && usable > 0;
    (pool.usable, pool.slots, pool.slow, pool.members, pool.apart) = (usable, slots, slow, members, apart);
    if returns || !pool.bridges_outages() {
        pool.outage_since = None;
    }
    pool.headroom = pool.policy.headroom(usable);
    // With one instance left, a retry that avoids it has no other choice.
    if gains || usable <= 1 {
        state.unplaced.push(key);
    }
    let pool = state.pools.at_mut(key);
    if usable > 0 {
        pool.deserted_since = None;
    } else if pool.deserted_since.is_none() {
        pool.deserted_since = Some(turn.now);
        wait_for_instances(state, turn, key);
    }
    if usable == 0 {
        look_for_outage(state, key, turn.now);
    } else {
        // Its instances may have been silent before an outage could be bridged.
        look_for_silence(state, turn, key);
    }
}

pub(crate) fn recount_pools_of(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    for index in 0..state.instances.at(key).serves.len() {
        let pool = state.instances.at(key).serves[index].pool;
        recount(state, turn, pool);
    }
}

/// Sets the timer that looks for an outage, unless an earlier one is set.
pub(crate) fn look_for_outage(state: &mut State, key: PoolKey, at: Time) {
    let pool = state.pools.at_mut(key);
    if pool.bridges_outages() && pool.outage_since.is_none() && pool.outage_timer.is_none_or(|set| at < set) {
        pool.outage_timer = Some(at);
        state.timers.set(at, Timer::Outage(key));
    }
}

/// Sets the timer that looks for silent instances while jobs run or queries wait, unless one is set. Jobs of other models may
/// keep all instances from these queries.
pub(crate) fn look_for_silence(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at(key);
    let has_work = pool.running > 0 || pool.queue.waiting() > 0;
    if pool.apart > 0 && has_work && pool.outage_timer.is_none() {
        let silent_at = silent_from(pool, turn.now);
        silent_at.into_iter().for_each(|at| look_for_outage(state, key, at));
    }
}

/// Sets the timer after which queries without an instance are rejected.
pub(crate) fn wait_for_instances(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at_mut(key);
    let at = turn.now + pool.settings.no_instance_grace;
    // The grace may have become shorter.
    if pool.no_instance_timer.is_none_or(|set| at < set) && pool.unanswered > 0 {
        pool.no_instance_timer = Some(at);
        state.timers.set(at, Timer::NoInstance(key));
    }
}
