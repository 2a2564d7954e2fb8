//! Instances come and go, are ejected when they are slow or fail, and return when a probe finds them well.

use std::mem;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::health::{Due, Health, Reason};
use super::idle::Room;
use super::instance::{Instance, Serves};
use super::pool::Pool;
use super::timers::Timer;
use super::{Action, EjectionSettings, Failure, InstanceId, InstanceSpec};

impl Dispatcher {
    /// An instance is ready; or one that is known serves something else from now on.
    pub(super) fn joined(&mut self, id: InstanceId, spec: InstanceSpec) {
        let mut serves: smallvec::SmallVec<[Serves; 2]> = Default::default();
        for served in &spec.serves {
            let pool = self.pool(served.pool);
            serves.push(Serves {
                pool,
                deployed: served.deployed,
                parity: served.parity,
                backup: served.backup,
                stand_in: served.stand_in,
                data: false,
                redundancy: false,
                doubt: Default::default(),
            });
        }
        let (node, slots) = (spec.node, spec.slots.max(1));
        if let Some(key) = self.instance_names.get(id) {
            self.withdraw(key);
            let instance = &mut self.instances[key];
            (instance.slots, instance.node, instance.draining) = (slots, node, false);
            for before in mem::replace(&mut instance.serves, serves) {
                self.recount(before.pool);
            }
            self.readmitted(key);
            return;
        }
        let (health, jobs) = (Health::new(), Default::default());
        let key = self.instances.insert(Instance { id, node, slots, serves, jobs, draining: false, health });
        self.instance_names.insert(id, key);
        self.readmitted(key);
    }

    pub(super) fn draining(&mut self, id: InstanceId) {
        if let Some(key) = self.instance_names.get(id) {
            self.instances[key].draining = true;
            self.refresh(key);
            self.recount_pools_of(key);
        }
    }

    /// An instance is gone; what it held is tried elsewhere.
    pub(super) fn left(&mut self, id: InstanceId) {
        let Some(key) = self.instance_names.remove(id) else { return };
        self.withdraw(key);
        let Some(instance) = self.instances.remove(key) else { return };
        for serves in &instance.serves {
            self.recount(serves.pool);
        }
        // They are lost already: what the failure of one leads to must not ask the driver to drop another.
        for job in &instance.jobs {
            self.jobs[*job].dropped = true;
        }
        for job in instance.jobs {
            self.failed(job, Failure::Instance);
        }
        // A retry that avoided another instance may have nowhere else to go now.
        for serves in &instance.serves {
            if self.pools.contains(serves.pool) {
                self.feed(serves.pool);
            }
        }
    }

    /// Takes an instance out of service, if its pools can do without it.
    pub(super) fn eject(&mut self, key: Key<Instance>, pool: Key<Pool>, reason: Reason) {
        let Some(instance) = self.instances.get(key) else { return };
        let mut settings = self.pools[pool].settings.ejection.clone();
        if reason == Reason::Wrong {
            let quarantine = self.pools[pool].quarantine();
            (settings.enabled, settings.backoff_min, settings.backoff_max) = (true, quarantine, quarantine);
        }
        if !settings.enabled || !instance.health.in_service() {
            return;
        }
        if reason != Reason::Failing && !self.can_spare(key) {
            self.pools[pool].counters.ejections_refused += 1;
            return;
        }
        let counters = &mut self.pools[pool].counters;
        match reason {
            Reason::Slow => counters.ejected_slow += 1,
            Reason::Failing => counters.ejected_failing += 1,
            Reason::Wrong => counters.ejected_wrong += 1,
        }
        self.put_out(key, reason, &settings);
        self.refresh(key);
        self.recount_pools_of(key);
    }

    /// Puts an instance that was ejected for being slow back into service, if its pool cannot do without it.
    pub(super) fn recall(&mut self, key: Key<Pool>) {
        let pool = &mut self.pools[key];
        if pool.slow == 0 || !pool.backlogged() {
            return;
        }
        let slow = |instance: &Instance| {
            instance.slow_only() && instance.serves(key).is_some_and(|serves| serves.data)
        };
        let Some((instance, _)) = self.instances.iter().find(|(_, instance)| slow(instance)) else { return };
        pool.counters.recalled += 1;
        let settings = self.ejection_settings(instance);
        self.instances[instance].health.readmit(&settings);
        self.readmitted(instance);
    }

    pub(super) fn probe_due(&mut self, key: Key<Instance>) {
        let settings = self.ejection_settings(key);
        let Some(instance) = self.instances.get_mut(key) else { return };
        match instance.health.due(self.now, &settings) {
            Due::Nothing => {}
            Due::Probe { until } => {
                self.out.push(Action::Probe(instance.id));
                self.timers.set(until, Timer::Probe(key));
            }
            Due::Overdue => self.probe_failed(key, &settings),
        }
    }

    pub(super) fn probe_answered(&mut self, id: InstanceId, works: bool) {
        let Some(key) = self.instance_names.get(id) else { return };
        if !self.instances[key].health.awaits_probe() {
            return;
        }
        let settings = self.ejection_settings(key);
        if !works {
            self.probe_failed(key, &settings);
            return;
        }
        let instance = &mut self.instances[key];
        if instance.health.out_for() == Some(Reason::Wrong) {
            // A probe does not tell whether its answers are right by now.
            for serves in &mut instance.serves {
                serves.doubt.remember(&self.pools[serves.pool].doubts().0);
            }
        }
        instance.health.readmit(&settings);
        self.readmitted(key);
    }

    /// Keeps the pools' view of an instance's room up to date.
    pub(super) fn refresh(&mut self, key: Key<Instance>) {
        let instance = &self.instances[key];
        let room = instance.room();
        for serves in &instance.serves {
            let pool = &mut self.pools[serves.pool];
            pool.idle.set(key.index(), if serves.data { room } else { Room::None });
            pool.redundancy_idle.set(key.index(), if serves.redundancy { room } else { Room::None });
        }
    }

    /// An instance takes work (again).
    fn readmitted(&mut self, key: Key<Instance>) {
        self.refresh(key);
        self.recount_pools_of(key);
        self.feed_instance(key);
    }

    /// An instance has no room for anybody, until it is refreshed.
    fn withdraw(&mut self, key: Key<Instance>) {
        for serves in &self.instances[key].serves {
            self.pools[serves.pool].idle.set(key.index(), Room::None);
            self.pools[serves.pool].redundancy_idle.set(key.index(), Room::None);
        }
    }

    /// An instance that does not even answer a probe is worse than slow.
    fn probe_failed(&mut self, key: Key<Instance>, settings: &EjectionSettings) {
        self.put_out(key, Reason::Failing, settings);
        self.recount_pools_of(key);
    }

    /// Out of service until a probe is answered.
    fn put_out(&mut self, key: Key<Instance>, reason: Reason, settings: &EjectionSettings) {
        let jitter = self.random();
        let probe_at = self.instances[key].health.eject(self.now, reason, settings, jitter);
        self.timers.set(probe_at, Timer::Probe(key));
    }

    /// Whether the others would not be too busy without an instance.
    fn can_spare(&mut self, key: Key<Instance>) -> bool {
        let instance = &self.instances[key];
        let slots = instance.slots;
        let pools: smallvec::SmallVec<[_; 2]> =
            instance.serves.iter().filter(|serves| serves.data).map(|serves| serves.pool).collect();
        pools.into_iter().all(|pool_key| {
            let lost = self.pools[pool_key].policy.lost_to_slowness();
            let weak = if lost > 0.0 { self.slow_beside(pool_key, key) } else { 0 };
            let pool = &mut self.pools[pool_key];
            let left = pool.slots.saturating_sub(u32::from(slots));
            let Some(recent) = pool.service.reading() else { return false };
            let busy = pool.load.busy(self.now, recent.median);
            left > 0
                && !pool.backlogged()
                && busy
                    <= (f64::from(left) - lost * f64::from(weak))
                        * pool.settings.ejection.max_utilisation.get()
        })
    }

    /// How many other usable slots of a pool are at instances whose last answer was slow.
    fn slow_beside(&self, pool: Key<Pool>, key: Key<Instance>) -> u32 {
        let slow = |instance: &Instance| {
            instance.usable()
                && instance.health.was_slow()
                && instance.serves(pool).is_some_and(|serves| serves.data)
        };
        let others = self.instances.iter().filter(|(other, instance)| *other != key && slow(instance));
        others.map(|(_, instance)| u32::from(instance.slots)).sum()
    }

    /// The settings by which an instance is probed: those of the first pool that it serves.
    fn ejection_settings(&self, key: Key<Instance>) -> EjectionSettings {
        let serves = self.instances.get(key).and_then(|instance| instance.serves.first());
        serves.map(|serves| self.pools[serves.pool].settings.ejection.clone()).unwrap_or_default()
    }

    fn recount_pools_of(&mut self, key: Key<Instance>) {
        for index in 0..self.instances[key].serves.len() {
            self.recount(self.instances[key].serves[index].pool);
        }
    }

    /// Deals a pool's instances out to queries and redundancy, and counts what there is for queries.
    pub(super) fn recount(&mut self, key: Key<Pool>) {
        let Some(pool) = self.pools.get(key) else { return };
        let serve = |instance: &Instance| {
            instance.serves(key).is_some_and(|s| s.deployed || s.parity || s.backup || s.stand_in)
        };
        let all = self.instances.iter().filter(|(_, instance)| !instance.draining && serve(instance));
        let mut kept = pool.policy.dedicated(all.count() as u32);
        let splits = kept > 0;

        // Those without the deployed model are kept first, then the last that joined.
        let mut members: Vec<(bool, Key<Instance>)> = self
            .instances
            .iter()
            .filter_map(|(instance, value)| Some((value.serves(key)?.deployed, instance)))
            .collect();
        members.sort_unstable_by_key(|(deployed, instance)| (*deployed, std::cmp::Reverse(instance.index())));
        let (mut usable, mut slots, mut slow) = (0, 0, 0);
        for (deployed, instance_key) in members {
            let instance = &mut self.instances[instance_key];
            let keep = kept > 0 && !instance.draining;
            kept -= u32::from(keep);
            let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == key) else { continue };
            serves.data = deployed && !keep;
            serves.redundancy = (keep || !splits) && (serves.parity || serves.backup);
            let data = serves.data;
            if data && instance.usable() {
                usable += 1;
                slots += u32::from(instance.slots);
            }
            slow += u32::from(data && instance.slow_only());
            self.refresh(instance_key);
        }
        let pool = &mut self.pools[key];
        (pool.usable, pool.slots, pool.slow) = (usable, slots, slow);
        pool.headroom = pool.policy.headroom(usable);
        if usable > 0 {
            pool.deserted_since = None;
        } else if pool.deserted_since.is_none() {
            pool.deserted_since = Some(self.now);
            self.wait_for_instances(key);
        }
    }
}
