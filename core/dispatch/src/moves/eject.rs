//! Ejects instances, probes them and readmits them.
//!
//! Slow and wrong instances are ejected as a whole. An instance on which one model fails is ejected for that model
//! only. Whether the other instances can take the load is decided in `rules::affordable`.

use smallvec::SmallVec;

use crate::api::{Action, EjectionSettings, Reason};
use crate::moves::room::{recount_pools_of, refresh};
use crate::rules::affordable::{can_lose, can_spare, can_spare_of, settings_of};
use crate::rules::blame::{doubts, quarantine};
use crate::rules::waiting::has_pressing_work;
use crate::state::State;
use crate::state::extra::Extra;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::pool::Pool;
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Ejects an instance, if the others can take its load.
pub(crate) fn eject(state: &mut State, turn: &mut Turn, key: InstanceKey, pool: PoolKey, reason: Reason) {
    let mut of = (reason == Reason::Failing).then_some(pool);
    if reason == Reason::Wrong && !can_spare(state, turn, key) && can_spare_of(state, turn, key, pool) {
        // Another model needs it, perhaps one that is not used.
        of = Some(pool);
    }
    let Some(health) = state.health_mut(key, of).copied() else { return };
    let mut settings = state.pools.at(pool).settings.ejection.clone();
    if reason == Reason::Wrong {
        let away = quarantine(state.pools.at(pool));
        (settings.enabled, settings.backoff_min, settings.backoff_max) = (true, away, away);
    }
    if !settings.enabled || !health.in_service() {
        return;
    }
    let spared = match of {
        Some(_) => can_lose(state, key, pool),
        None => {
            let mut own = state.instances.at(key).serves.iter().filter(|own| own.data);
            // One that returns nothing is no help to the others.
            (health.is_silent() || own.all(|own| can_lose(state, key, own.pool)))
                && can_spare(state, turn, key)
        }
    };
    if !spared {
        state.pools.at_mut(pool).counters.ejections_refused += 1;
        turn.out.push(Action::Kept(state.instances.at(key).id, state.pools.at(pool).id, reason));
        return;
    }
    state.pools.at_mut(pool).counters.count_ejection(reason);
    mark_ejected(state, turn, key, of, reason, &settings);
    turn.out.push(Action::Ejected(state.instances.at(key).id, state.pools.at(pool).id, reason));
    refresh(state, turn, key);
    recount_pools_of(state, turn, key);
}

/// Readmits a slow instance if a queue has built up without it, or if work waits and no other instance is left than one
/// that failed it. Returns it.
pub(crate) fn recall(state: &mut State, turn: &mut Turn, key: PoolKey) -> Option<InstanceKey> {
    let pool = state.pools.at(key);
    let is_deserted = || match pool.usable {
        0 => has_pressing_work(state, key),
        1 => pool.urgent.iter().any(|extra| avoids_the_last(state, turn, extra)),
        _ => false,
    };
    if pool.slow == 0 || !(pool.backlogged() || is_deserted()) {
        return None;
    }
    let slow = |instance: &Instance| {
        instance.slow_only()
            && !instance.health.may_hang()
            && instance.serves(key).is_some_and(Serves::takes_queries)
    };
    let (key_of, _) = state.instances.iter().find(|(_, instance)| slow(instance))?;
    state.pools.at_mut(key).counters.recalled += 1;
    let settings = settings_of(state, key_of, None);
    let instance = state.instances.at_mut(key_of);
    instance.health.recall(&settings);
    turn.out.push(Action::Readmitted(instance.id));
    probe_in_service(state, turn, key_of);
    Some(key_of)
}

/// Whether a retry avoids the instance of a pool that has only one.
fn avoids_the_last(state: &State, turn: &Turn, extra: &Extra) -> bool {
    let usable = |at| state.instances.get(at).is_some_and(Instance::usable);
    extra.avoid.is_some_and(|(at, until)| turn.now < until && usable(at))
}

/// Probes the failing instances of a pool soon, if work waits and no instance is left or answers. So are those that could
/// answer for them.
pub(crate) fn hasten_probes(state: &mut State, turn: &Turn, key: PoolKey) {
    let pool = state.pools.at(key);
    if pool.usable > 0 && pool.outage_since.is_none() || !has_pressing_work(state, key) {
        return;
    }
    let bridges = pool.wants_bridges();
    for instance in state.instances.keys() {
        let of = state.instances.at(instance);
        let helps = |serves: &Serves| serves.data || bridges && serves.is_apart();
        if of.draining || !of.serves(key).is_some_and(helps) {
            continue;
        }
        for of in [None, Some(key)] {
            let settings = settings_of(state, instance, of);
            let probe_at =
                state.health_mut(instance, of).and_then(|health| health.hasten(turn.now, &settings));
            probe_at.into_iter().for_each(|at| state.timers.set(at, Timer::Probe(instance)));
        }
    }
}

/// Probes an instance that stays in service after it returned nothing.
pub(crate) fn probe_in_service(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    let (now, settings) = (turn.now, settings_of(state, key, None));
    let Some(instance) = state.instances.get_mut(key) else { return };
    if let Some(until) = instance.health.ask(now, &settings) {
        turn.out.push(Action::Probe(instance.id, None));
        state.timers.set(until, Timer::Probe(key));
    }
}

/// Ejects an instance that failed a probe. One that is still in service is ejected as a whole if all its pools can
/// do without it, otherwise from those that can. A model that only this instance serves, perhaps unused, must not
/// keep it in service for all others.
pub(crate) fn probe_failed(state: &mut State, turn: &mut Turn, key: InstanceKey, of: Option<PoolKey>) {
    let settings = settings_of(state, key, of);
    if let Some(health) = state.health_mut(key, of).filter(|health| health.in_service()) {
        health.asked();
        let pools = state.instances.at(key).serves.iter().filter(|serves| serves.takes_queries());
        let pools: SmallVec<[_; 2]> = pools.map(|serves| serves.pool).collect();
        let (without, with): (Vec<_>, Vec<_>) =
            pools.into_iter().partition(|pool| can_lose(state, key, *pool));
        if !with.is_empty() {
            for pool in without {
                let settings = settings_of(state, key, Some(pool));
                mark_ejected(state, turn, key, Some(pool), Reason::Failing, &settings);
                report_silent(state, turn, key, Some(pool));
            }
            refresh(state, turn, key);
            recount_pools_of(state, turn, key);
            return;
        }
        report_silent(state, turn, key, of);
    }
    mark_ejected(state, turn, key, of, Reason::Failing, &settings);
    refresh(state, turn, key);
    recount_pools_of(state, turn, key);
}

/// Reports an instance that is ejected because it did not answer a probe.
fn report_silent(state: &mut State, turn: &mut Turn, key: InstanceKey, of: Option<PoolKey>) {
    let instance = state.instances.at(key);
    let pool = of.or_else(|| Some(instance.serves.first()?.pool));
    if let Some(pool) = pool.and_then(|pool| state.pools.get(pool)) {
        turn.out.push(Action::Ejected(instance.id, pool.id, Reason::Failing));
    }
}

/// Marks an instance, or a model on it, as ejected until it answers a probe.
fn mark_ejected(
    state: &mut State,
    turn: &Turn,
    key: InstanceKey,
    of: Option<PoolKey>,
    reason: Reason,
    settings: &EjectionSettings,
) {
    let (now, jitter) = (turn.now, state.random());
    let Some(health) = state.health_mut(key, of) else { return };
    let probe_at = health.eject(now, reason, settings, jitter);
    state.timers.set(probe_at, Timer::Probe(key));
}

/// Starts the slow start of an instance that joined or failed before, if others can do the work.
pub(crate) fn warm_up(state: &mut State, turn: &Turn, key: InstanceKey) {
    let slow_start = settings_of(state, key, None).slow_start;
    let busy = |pool: &Pool| pool.usable > 0 && pool.service.reading().is_some();
    let instance = state.instances.at_mut(key);
    if slow_start.is_zero() || !instance.serves.iter().any(|serves| busy(state.pools.at(serves.pool))) {
        return;
    }
    let until = turn.now + slow_start;
    instance.warm_at = Some(until);
    state.timers.set(until, Timer::Warm(key));
}

/// Takes a failure back that was the query's fault. Returns whether that readmits the instance.
pub(crate) fn forgive(state: &mut State, turn: &mut Turn, key: InstanceKey, pool: PoolKey) -> bool {
    let settings = settings_of(state, key, Some(pool));
    let readmitted = state.health_mut(key, Some(pool)).is_some_and(|health| health.forgive(&settings));
    if readmitted {
        turn.out.push(Action::Readmitted(state.instances.at(key).id));
    }
    readmitted
}

/// Reacts to the answer of a probe. Returns whether that readmits the instance.
pub(crate) fn probe_answered(
    state: &mut State,
    turn: &mut Turn,
    key: InstanceKey,
    of: Option<PoolKey>,
    works: bool,
) -> bool {
    let settings = settings_of(state, key, of);
    let Some(health) = state.health_mut(key, of).filter(|health| health.awaits_probe()) else { return false };
    if !works {
        probe_failed(state, turn, key, of);
        return false;
    }
    if !health.is_probed() {
        health.asked();
        return false;
    }
    let reason = health.out_for();
    health.readmit(&settings);
    turn.out.push(Action::Readmitted(state.instances.at(key).id));
    if reason == Some(Reason::Wrong) {
        // A probe does not show whether its answers are right.
        for serves in &mut state.instances.at_mut(key).serves {
            serves.doubt.remember(&doubts(state.pools.at(serves.pool)).0);
        }
    }
    // A slow instance has been running and is warm. A slow start would only make the others busier.
    if reason != Some(Reason::Slow) {
        warm_up(state, turn, key);
    }
    true
}
