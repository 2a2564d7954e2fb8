//! Instances come and go, are ejected when they are slow or fail, and return when a probe finds them well.
//!
//! Who is slow or wrong is taken out of service altogether; where one model fails on an instance, it is for that model.
//!
//! An instance that comes, or comes back, does not get a full share at once: for a moment those that have nothing to do come
//! before it. So its first runs, which are slow ones, and its failures if it is not well after all, meet only queries that
//! would have had to wait. Rejected: a share that grows step by step, as there are no shares where whoever is free takes
//! what waits longest; and fewer slots at first, as a query that waits beside a free slot helps nobody.

use std::mem;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::health::{Due, Health, Reason};
use super::idle::Room;
use super::instance::{Instance, Serves};
use super::neighbours::Elsewhere;
use super::pool::Pool;
use super::timers::Timer;
use super::{Action, EjectionSettings, Failure, InstanceId, InstanceSpec, PoolId};

impl Dispatcher {
    /// An instance is ready; or one that is known serves something else from now on.
    pub(super) fn joined(&mut self, id: InstanceId, spec: InstanceSpec) {
        let known = self.instance_names.get(id);
        let mut serves: smallvec::SmallVec<[Serves; 2]> = Default::default();
        for served in &spec.serves {
            let pool = self.pool(served.pool);
            self.pools[pool].provisional = false;
            let before = known.and_then(|key| self.instances[key].serves(pool));
            serves.push(Serves {
                pool,
                health: before.map_or_else(Health::new, |before| before.health),
                deployed: served.deployed,
                parity: served.parity,
                backup: served.backup,
                stand_in: served.stand_in,
                data: false,
                redundancy: false,
                allowed: None,
                doubt: Default::default(),
            });
        }
        let (site, slots) = (spec.site, spec.slots.max(1));
        if let Some(key) = known {
            self.withdraw(key);
            let instance = &mut self.instances[key];
            (instance.slots, instance.site, instance.draining, instance.ahead) = (slots, site, false, 1);
            for before in mem::replace(&mut instance.serves, serves) {
                self.recount(before.pool);
            }
            self.watch_jobs_of(key);
            self.readmitted(key);
            return;
        }
        let (health, jobs) = (Health::new(), Default::default());
        let instance = Instance {
            id,
            site,
            slots,
            ahead: 1,
            heard: self.now,
            silent: false,
            watched: false,
            serves,
            jobs,
            draining: false,
            health,
            tokens: None,
            elsewhere: Elsewhere::default(),
            let_go: self.now,
            warm_at: None,
        };
        let key = self.instances.insert(instance);
        self.instance_names.insert(id, key);
        self.warm_up(key);
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
        self.forget_tokens(key);
        let Some(instance) = self.instances.remove(key) else { return };
        self.crowded -= u32::from(instance.elsewhere.jobs > 0);
        self.abroad -= u32::from(!instance.elsewhere.home);
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
        let of = (reason == Reason::Failing).then_some(pool);
        let Some(health) = self.health(key, of).copied() else { return };
        let mut settings = self.pools[pool].settings.ejection.clone();
        if reason == Reason::Wrong {
            let quarantine = self.pools[pool].quarantine();
            (settings.enabled, settings.backoff_min, settings.backoff_max) = (true, quarantine, quarantine);
        }
        if !settings.enabled || !health.in_service() {
            return;
        }
        let spared = if of.is_some() { self.can_lose(key, pool) } else { self.can_spare(key) };
        if !spared {
            self.pools[pool].counters.ejections_refused += 1;
            self.out.push(Action::Kept(self.instances[key].id, self.pools[pool].id, reason));
            return;
        }
        let counters = &mut self.pools[pool].counters;
        match reason {
            Reason::Slow => counters.ejected_slow += 1,
            Reason::Failing => counters.ejected_failing += 1,
            Reason::Wrong => counters.ejected_wrong += 1,
        }
        self.put_out(key, of, reason, &settings);
        self.out.push(Action::Ejected(self.instances[key].id, self.pools[pool].id, reason));
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
            instance.slow_only()
                && !instance.health.may_hang()
                && instance.serves(key).is_some_and(Serves::takes_queries)
        };
        let Some((instance, _)) = self.instances.iter().find(|(_, instance)| slow(instance)) else { return };
        pool.counters.recalled += 1;
        let settings = self.settings_of(instance, None);
        self.instances[instance].health.recall(&settings);
        self.out.push(Action::Readmitted(self.instances[instance].id));
        self.ask(instance);
        self.readmitted(instance);
    }

    /// Asks an instance that stays in service whether it hangs, if it has given nothing back.
    pub(super) fn ask(&mut self, key: Key<Instance>) {
        let (now, settings) = (self.now, self.settings_of(key, None));
        let Some(instance) = self.instances.get_mut(key) else { return };
        if let Some(until) = instance.health.ask(now, &settings) {
            self.out.push(Action::Probe(instance.id, None));
            self.timers.set(until, Timer::Probe(key));
        }
    }

    pub(super) fn probe_due(&mut self, key: Key<Instance>) {
        self.probe_of_due(key, None);
        for index in 0..self.instances.get(key).map_or(0, |instance| instance.serves.len()) {
            let pool = self.instances[key].serves[index].pool;
            self.probe_of_due(key, Some(pool));
        }
    }

    fn probe_of_due(&mut self, key: Key<Instance>, of: Option<Key<Pool>>) {
        let (now, settings) = (self.now, self.settings_of(key, of));
        let Some(health) = self.health(key, of) else { return };
        match health.due(now, &settings) {
            Due::Nothing => {}
            Due::Probe { until } => {
                let pool = of.map(|pool| self.pools[pool].id);
                self.out.push(Action::Probe(self.instances[key].id, pool));
                self.timers.set(until, Timer::Probe(key));
            }
            Due::Overdue => self.probe_failed(key, of),
        }
    }

    pub(super) fn probe_answered(&mut self, id: InstanceId, pool: Option<PoolId>, works: bool) {
        let Some(key) = self.instance_names.get(id) else { return };
        let of = pool.and_then(|pool| self.pool_names.get(pool));
        if of.is_some() != pool.is_some() {
            return; // the model is unloaded
        }
        let settings = self.settings_of(key, of);
        let Some(health) = self.health(key, of).filter(|health| health.awaits_probe()) else { return };
        if !works {
            self.probe_failed(key, of);
            return;
        }
        if !health.is_probed() {
            health.asked();
            return;
        }
        let reason = health.out_for();
        health.readmit(&settings);
        self.out.push(Action::Readmitted(id));
        if reason == Some(Reason::Wrong) {
            // A probe does not tell whether its answers are right by now.
            for serves in &mut self.instances[key].serves {
                serves.doubt.remember(&self.pools[serves.pool].doubts().0);
            }
        }
        // Who was slow has run all the while and is warm. Sparing it would only make the others busier.
        if reason != Some(Reason::Slow) {
            self.warm_up(key);
        }
        self.readmitted(key);
    }

    /// An instance that came, or that failed before, is to be spared for a moment, where others do what there is to do.
    fn warm_up(&mut self, key: Key<Instance>) {
        let slow_start = self.settings_of(key, None).slow_start;
        let busy = |pool: &Pool| pool.usable > 0 && pool.service.reading().is_some();
        let instance = &mut self.instances[key];
        if slow_start.is_zero() || !instance.serves.iter().any(|serves| busy(&self.pools[serves.pool])) {
            return;
        }
        let until = self.now + slow_start;
        instance.warm_at = Some(until);
        self.timers.set(until, Timer::Warm(key));
    }

    pub(super) fn warmed_up(&mut self, key: Key<Instance>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.warm_at.is_some_and(|at| at <= self.now) {
            instance.warm_at = None;
            self.refresh(key);
            // Work that needs one more idle instance may have waited for this one.
            self.feed_instance(key);
        }
    }

    /// Keeps the pools' view of an instance's room up to date.
    pub(super) fn refresh(&mut self, key: Key<Instance>) {
        self.surrender(key);
        let instance = &self.instances[key];
        let room = instance.room();
        for serves in &instance.serves {
            let pool = &mut self.pools[serves.pool];
            pool.idle.set(key.index(), if serves.takes_queries() { room } else { Room::None });
            pool.redundancy_idle.set(key.index(), if serves.takes_redundancy() { room } else { Room::None });
        }
    }

    /// An instance takes work (again).
    pub(super) fn readmitted(&mut self, key: Key<Instance>) {
        self.refresh(key);
        self.recount_pools_of(key);
        self.feed_instance(key);
        self.seek_for_all(key);
    }

    /// An instance has no room for anybody, until it is refreshed.
    fn withdraw(&mut self, key: Key<Instance>) {
        for serves in &self.instances[key].serves {
            self.pools[serves.pool].idle.set(key.index(), Room::None);
            self.pools[serves.pool].redundancy_idle.set(key.index(), Room::None);
        }
    }

    /// An instance that does not even answer a probe is worse than slow. One that is still in service goes altogether if all
    /// of its pools can do without it; else from those that can, or a model that nobody else has, and that perhaps nobody
    /// asks for, would have it fed with all the others.
    fn probe_failed(&mut self, key: Key<Instance>, of: Option<Key<Pool>>) {
        let settings = self.settings_of(key, of);
        if let Some(health) = self.health(key, of).filter(|health| health.in_service()) {
            health.asked();
            let pools = self.instances[key].serves.iter().filter(|serves| serves.takes_queries());
            let pools: smallvec::SmallVec<[_; 2]> = pools.map(|serves| serves.pool).collect();
            let (without, with): (Vec<_>, Vec<_>) =
                pools.into_iter().partition(|pool| self.can_lose(key, *pool));
            if !with.is_empty() {
                for pool in without {
                    let settings = self.settings_of(key, Some(pool));
                    self.put_out(key, Some(pool), Reason::Failing, &settings);
                    self.tell_silent(key, Some(pool));
                }
                self.refresh(key);
                self.recount_pools_of(key);
                return;
            }
            self.tell_silent(key, of);
        }
        self.put_out(key, of, Reason::Failing, &settings);
        self.refresh(key);
        self.recount_pools_of(key);
    }

    /// An instance goes because it does not even answer a probe.
    fn tell_silent(&mut self, key: Key<Instance>, of: Option<Key<Pool>>) {
        let instance = &self.instances[key];
        let pool = of.or_else(|| Some(instance.serves.first()?.pool));
        if let Some(pool) = pool.and_then(|pool| self.pools.get(pool)) {
            self.out.push(Action::Ejected(instance.id, pool.id, Reason::Failing));
        }
    }

    /// Out of service, with one model or at all, until a probe is answered.
    fn put_out(
        &mut self,
        key: Key<Instance>,
        of: Option<Key<Pool>>,
        reason: Reason,
        settings: &EjectionSettings,
    ) {
        let (now, jitter) = (self.now, self.random());
        let Some(health) = self.health(key, of) else { return };
        let probe_at = health.eject(now, reason, settings, jitter);
        self.timers.set(probe_at, Timer::Probe(key));
    }

    /// The record of an instance, or of a pool's model on it.
    fn health(&mut self, key: Key<Instance>, of: Option<Key<Pool>>) -> Option<&mut Health> {
        let instance = self.instances.get_mut(key)?;
        let Some(pool) = of else { return Some(&mut instance.health) };
        instance.serves.iter_mut().find(|serves| serves.pool == pool).map(|serves| &mut serves.health)
    }

    /// Whether a least share of a pool's instances is left without one that fails.
    fn can_lose(&self, key: Key<Instance>, pool_key: Key<Pool>) -> bool {
        let pool = &self.pools[pool_key];
        let left = f64::from(self.usable_without(key, pool_key));
        left >= f64::from(pool.members) * pool.settings.ejection.least_in_service.get()
    }

    /// How many other instances take a pool's queries now.
    pub(super) fn usable_without(&self, key: Key<Instance>, pool: Key<Pool>) -> u32 {
        let counted = self.instances.get(key).is_some_and(|instance| {
            instance.usable() && instance.serves(pool).is_some_and(Serves::takes_queries)
        });
        self.pools[pool].usable - u32::from(counted)
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
            // Of what hardly anybody asks for no time is known, and it keeps nobody busy.
            let busy = pool.busy(self.now);
            left > 0
                // Or it would be called back at once.
                && pool.queue.waiting() <= left
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

    /// The settings by which a pool's model on an instance is probed; of an instance, those of the first pool that it serves.
    fn settings_of(&self, key: Key<Instance>, of: Option<Key<Pool>>) -> EjectionSettings {
        let first = || Some(self.instances.get(key)?.serves.first()?.pool);
        let pool = of.or_else(first).and_then(|pool| self.pools.get(pool));
        pool.map(|pool| pool.settings.ejection.clone()).unwrap_or_default()
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

        // Those without the deployed model are kept first, then the last that joined.
        let mut serving: Vec<(bool, Key<Instance>)> = self
            .instances
            .iter()
            .filter_map(|(instance, value)| Some((value.serves(key)?.deployed, instance)))
            .collect();
        serving.sort_unstable_by_key(|(deployed, instance)| (*deployed, std::cmp::Reverse(instance.index())));
        let runs_queries = |(deployed, instance): &(bool, Key<Instance>)| {
            let of = &self.instances[*instance];
            *deployed && of.usable() && of.serves(key).is_some_and(|serves| serves.health.in_service())
        };
        let stays = |(_, instance): &&(bool, Key<Instance>)| !self.instances[*instance].draining;
        // Where all other instances are out of service, those that are kept run queries: parities of nothing help no query.
        if !serving.iter().filter(stays).skip(kept as usize).any(runs_queries) {
            kept = 0;
        }
        let splits = kept > 0;
        let (mut usable, mut slots, mut slow, mut members) = (0, 0, 0, 0);
        for (deployed, instance_key) in serving {
            let instance = &mut self.instances[instance_key];
            let keep = kept > 0 && !instance.draining;
            kept -= u32::from(keep);
            let Some(serves) = instance.serves.iter_mut().find(|serves| serves.pool == key) else { continue };
            serves.data = deployed && !keep;
            serves.redundancy = (keep || !splits) && (serves.parity || serves.backup);
            let (data, takes) = (serves.data, serves.takes_queries());
            members += u32::from(data && !instance.draining);
            if takes && instance.usable() {
                usable += 1;
                slots += u32::from(instance.slots);
            }
            slow += u32::from(takes && instance.slow_only());
            self.refresh(instance_key);
        }
        let pool = &mut self.pools[key];
        (pool.usable, pool.slots, pool.slow, pool.members) = (usable, slots, slow, members);
        pool.headroom = pool.policy.headroom(usable);
        if usable > 0 {
            pool.deserted_since = None;
        } else if pool.deserted_since.is_none() {
            pool.deserted_since = Some(self.now);
            self.wait_for_instances(key);
        }
    }
}
