//! Which pools and parities the dispatcher may send to each instance, kept up to date while models, codes and settings
//! change.
//!
//! Whether an instance can run a pool's parities depends on the models that it has, on the codes in force, and on pools
//! that may come after it. So what all instances have is kept here, and worked out again whenever one of these changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use parm_dispatch::{Cost, Event, InstanceId, InstanceSpec, PoolId, Served, Site};

use super::catalog::Catalog;
use super::coding::cost;
use super::driver::Driver;
use super::instance::Instance;
use super::pool::{Description, Pool};

/// The instances that have joined.
#[derive(Default)]
pub(crate) struct Roster {
    joined: Mutex<BTreeMap<InstanceId, Joined>>,
    /// What the dispatcher was told of stand-ins' costs.
    costs: Mutex<BTreeMap<PoolId, Cost>>,
    /// Called after the models are listed and before the dispatcher receives them.
    #[cfg(test)]
    pub(crate) before_settling: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

/// An instance that has joined.
pub(crate) struct Joined {
    instance: Arc<Instance>,
    site: Site,
    models: Vec<Description>,
    slots: u16,
    draining: bool,
    /// What the dispatcher was told last.
    told: Option<InstanceSpec>,
}

impl Joined {
    /// An instance with these models, not draining.
    pub(crate) fn new(instance: Arc<Instance>, site: Site, models: Vec<Description>, slots: u16) -> Self {
        Self { instance, site, models, slots, draining: false, told: None }
    }

    /// What it is to these pools, and what is wrong with its parity models and stand-ins.
    fn spec(&self, pools: &[Arc<Pool>]) -> (InstanceSpec, Vec<String>) {
        let own = self.instance.pools();
        let mut problems = Vec::new();
        let mut serves = Vec::new();
        for pool in pools {
            let deployed = own.iter().any(|known| known.id == pool.id);
            let codes = pool.codes();
            let parity = codes.parity_at(&self.models, deployed).unwrap_or_else(|problem| {
                problems.push(problem);
                false
            });
            let backup = codes.backup_at(&self.models);
            let found = codes.stand_in_at(&self.models);
            let problem = found.and_then(|(stand_in, served)| stand_in.problem(pool, served));
            let stand_in = found.is_some() && problem.is_none();
            problems.extend(problem);
            if deployed || parity || backup || stand_in {
                serves.push(Served { pool: pool.id, deployed, parity, backup, stand_in });
            }
        }
        (InstanceSpec { serves, slots: self.slots, site: self.site }, problems)
    }

    /// Tells the dispatcher what it is to the pools, if it is something new.
    fn settle(&mut self, driver: &Arc<Driver>, pools: &[Arc<Pool>]) {
        let (spec, problems) = self.spec(pools);
        if self.told.as_ref() == Some(&spec) {
            return;
        }
        for problem in problems {
            tracing::warn!(instance = %self.instance.name, %problem, "it takes no parities, or no stand-ins");
        }
        self.told = Some(spec.clone());
        driver.join(&self.instance, spec);
        if self.draining {
            driver.on(Event::InstanceDraining(self.instance.id));
        }
    }
}

impl Roster {
    /// An instance joins, or has other models; the dispatcher hears of it when all is settled, if it is news.
    pub(crate) fn join(&self, mut joined: Joined) {
        let mut all = self.joined.lock();
        let known = all.get_mut(&joined.instance.id).filter(|known| !known.draining);
        joined.told = known.and_then(|known| known.told.take());
        all.insert(joined.instance.id, joined);
    }

    /// An instance that serves a pool's model and takes new work.
    pub(crate) fn one_of(&self, pool: &Pool) -> Option<Arc<Instance>> {
        let all = self.joined.lock();
        let serves = |joined: &&Joined| {
            !joined.draining && joined.instance.pools().iter().any(|known| known.id == pool.id)
        };
        all.values().find(serves).map(|joined| joined.instance.clone())
    }

    pub(crate) fn remove(&self, instance: InstanceId) {
        self.joined.lock().remove(&instance);
    }

    /// An instance gets no more work.
    pub(crate) fn drain(&self, driver: &Arc<Driver>, instance: InstanceId) {
        let mut all = self.joined.lock();
        if let Some(joined) = all.get_mut(&instance) {
            joined.draining = true;
        }
        driver.on(Event::InstanceDraining(instance));
    }

    /// Tells the dispatcher what the instances are to the pools, where that is something new.
    pub(crate) fn settle(&self, driver: &Arc<Driver>, catalog: &Catalog) {
        // One at a time: what is told last must be what is known last.
        let mut all = self.joined.lock();
        let pools = catalog.all();
        #[cfg(test)]
        self.before_settling();
        all.values_mut().for_each(|joined| joined.settle(driver, &pools));
        self.tell_costs(driver, &pools, &all);
    }

    /// Removes a pool from the dispatcher that the catalog no longer has. A thread that listed the pool before, to tell what
    /// instances are to it, is done by then. Otherwise the dispatcher would set the pool up again and keep it for ever.
    pub(crate) fn forget(&self, driver: &Arc<Driver>, pool: PoolId) {
        let _alone = self.joined.lock();
        driver.forget(pool);
    }

    /// Stops where a test wants another thread to go first.
    #[cfg(test)]
    fn before_settling(&self) {
        let hook = self.before_settling.lock().clone();
        hook.into_iter().for_each(|hook| hook());
    }

    /// The same where only this instance is new: a thousand that join would else be looked at a million times.
    pub(crate) fn settle_one(&self, driver: &Arc<Driver>, catalog: &Catalog, instance: InstanceId) {
        let mut all = self.joined.lock();
        let pools = catalog.all();
        all.get_mut(&instance).into_iter().for_each(|joined| joined.settle(driver, &pools));
        self.tell_costs(driver, &pools, &all);
    }

    /// Tells the dispatcher what stand-ins cost where the servers say what they measured, and it is something new.
    fn tell_costs(&self, driver: &Arc<Driver>, pools: &[Arc<Pool>], all: &BTreeMap<InstanceId, Joined>) {
        let mut told = self.costs.lock();
        told.retain(|id, _| pools.iter().any(|pool| pool.id == *id));
        for pool in pools {
            let cost = cost(pool, || all.values().map(|joined| joined.models.as_slice()));
            let Some(cost) = cost.filter(|cost| told.get(&pool.id) != Some(cost)) else { continue };
            told.insert(pool.id, cost);
            driver.on(Event::StandInCost(pool.id, cost));
        }
    }
}
