//! Instances join, drain, leave, answer probes and warm up.
//!
//! A new or readmitted instance does not get a full share at once: during its slow start, instances with nothing
//! to do come before it. So its first runs, which are slow, and its failures, if it is still broken, meet only
//! queries that would have waited. Rejected: a share that grows step by step (free instances pull the oldest work,
//! so shares do not exist); fewer slots at first (a query that waits next to a free slot gains nothing).

use smallvec::SmallVec;

use crate::api::{Action, Elsewhere, Failure, InstanceId, InstanceSpec, PoolId};
use crate::measure::concurrency::Concurrency;
use crate::measure::doubt::Doubt;
use crate::measure::health::{Due, Health};
use crate::measure::speed::Speed;
use crate::moves::eject::{probe_answered as answered, probe_failed, warm_up};
use crate::moves::pools::pool_named;
use crate::moves::reserve::forget_tokens;
use crate::moves::room::{recount, recount_pools_of, refresh, withdraw};
use crate::moves::watch::watch_jobs_of;
use crate::placing::{fill, place, readmit};
use crate::reactions::job::failed;
use crate::rules::affordable::settings_of;
use crate::state::State;
use crate::state::instance::{Instance, Serves};
use crate::state::keys::{InstanceKey, PoolKey};
use crate::state::timers::Timer;
use crate::turn::Turn;

/// Adds an instance, or updates the models that a known one serves.
pub(crate) fn joined(state: &mut State, turn: &mut Turn, id: InstanceId, spec: InstanceSpec) {
    let known = state.instance_names.get(id);
    let mut serves: SmallVec<[Serves; 2]> = Default::default();
    for served in &spec.serves {
        let pool = pool_named(state, turn, served.pool);
        state.pools.at_mut(pool).provisional = false;
        let before = known.and_then(|key| state.instances.at(key).serves(pool));
        serves.push(Serves {
            pool,
            health: before.map_or_else(Health::new, |before| before.health),
            speed: before.map_or_else(Speed::default, |before| before.speed),
            ran_at: before.map_or(turn.now, |before| before.ran_at),
            explored: 0,
            deployed: served.deployed,
            parity: served.parity,
            backup: served.backup,
            stand_in: served.stand_in,
            at_once: served.at_once,
            held: known.map_or(0, |key| jobs_of(state, key, pool)),
            data: false,
            redundancy: false,
            allowed: None,
            doubt: before.map_or_else(Doubt::default, |before| before.doubt),
        });
    }
    let (site, most) = (spec.site, spec.slots.max(1));
    if let Some(key) = known {
        withdraw(state, key);
        let instance = state.instances.at_mut(key);
        let concurrency = instance.concurrency.take().filter(|_| spec.learns);
        instance.concurrency = concurrency.map(|mut known| {
            known.change(most);
            known
        });
        if spec.learns {
            instance.concurrency.get_or_insert_with(|| Box::new(Concurrency::new(most)));
        }
        let slots = instance.concurrency.as_ref().map_or(most, |known| known.limit());
        (instance.slots, instance.site, instance.draining, instance.ahead) = (slots, site, false, 1);
        for before in std::mem::replace(&mut instance.serves, serves) {
            recount(state, turn, before.pool);
        }
        state.instances.at_mut(key).use_slots();
        watch_jobs_of(state, turn, key);
        readmit(state, turn, key);
        return;
    }
    let health = Health::new();
    let concurrency = spec.learns.then(|| Box::new(Concurrency::new(most)));
    let instance = Instance {
        id,
        site,
        slots: concurrency.as_ref().map_or(most, |known| known.limit()),
        concurrency,
        ahead: 1,
        heard: turn.now,
        silent: false,
        watched: false,
        serves,
        jobs: Default::default(),
        behind: Default::default(),
        draining: false,
        health,
        tokens: None,
        elsewhere: Elsewhere::default(),
        released_at: turn.now,
        warm_at: None,
    };
    let key = state.instances.insert(instance);
    state.instance_names.insert(id, key);
    warm_up(state, turn, key);
    readmit(state, turn, key);
}

/// The jobs of a pool that an instance holds, perhaps since it served the pool before.
fn jobs_of(state: &State, key: InstanceKey, pool: PoolKey) -> u16 {
    let held = state.instances.at(key).jobs.iter().filter_map(|job| state.jobs.get(*job));
    held.filter(|job| job.pool == pool).count() as u16
}

pub(crate) fn draining(state: &mut State, turn: &mut Turn, id: InstanceId) {
    if let Some(key) = state.instance_names.get(id) {
        state.instances.at_mut(key).draining = true;
        refresh(state, turn, key);
        recount_pools_of(state, turn, key);
    }
}

/// Removes an instance. Its jobs are retried elsewhere.
pub(crate) fn left(state: &mut State, turn: &mut Turn, id: InstanceId) {
    let Some(key) = state.instance_names.remove(id) else { return };
    withdraw(state, key);
    forget_tokens(state, key);
    let Some(instance) = state.instances.remove(key) else { return };
    state.crowded -= u32::from(instance.elsewhere.jobs > 0);
    state.abroad -= u32::from(!instance.elsewhere.home);
    for serves in &instance.serves {
        recount(state, turn, serves.pool);
    }
    // The jobs are lost already, and the failure of one must not drop another at the driver.
    for job in &instance.jobs {
        state.jobs.at_mut(*job).dropped = true;
    }
    for job in instance.jobs {
        failed(state, turn, job, Failure::Instance);
    }
    // A retry that avoids another instance may have no other choice now.
    for serves in &instance.serves {
        if state.pools.contains(serves.pool) {
            place(state, turn, serves.pool);
        }
    }
}

pub(crate) fn probe_due(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    probe_of_due(state, turn, key, None);
    for index in 0..state.instances.get(key).map_or(0, |instance| instance.serves.len()) {
        let pool = state.instances.at(key).serves[index].pool;
        probe_of_due(state, turn, key, Some(pool));
    }
}

fn probe_of_due(state: &mut State, turn: &mut Turn, key: InstanceKey, of: Option<PoolKey>) {
    let (now, settings) = (turn.now, settings_of(state, key, of));
    let Some(health) = state.health_mut(key, of) else { return };
    match health.due(now, &settings) {
        Due::Nothing => {}
        Due::Probe { until } => {
            let pool = of.map(|pool| state.pools.at(pool).id);
            turn.out.push(Action::Probe(state.instances.at(key).id, pool));
            state.timers.set(until, Timer::Probe(key));
        }
        Due::Overdue => probe_failed(state, turn, key, of),
    }
}

pub(crate) fn probe_answered(
    state: &mut State,
    turn: &mut Turn,
    id: InstanceId,
    pool: Option<PoolId>,
    works: bool,
) {
    let Some(key) = state.instance_names.get(id) else { return };
    let of = pool.and_then(|pool| state.pool_names.get(pool));
    if of.is_some() != pool.is_some() {
        return; // the model is unloaded
    }
    if answered(state, turn, key, of, works) {
        readmit(state, turn, key);
    }
}

pub(crate) fn warmed_up(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    let Some(instance) = state.instances.get_mut(key) else { return };
    if instance.warm_at.is_some_and(|at| at <= turn.now) {
        instance.warm_at = None;
        refresh(state, turn, key);
        // Work that needs another idle instance may have waited for this one.
        fill(state, turn, key);
    }
}
