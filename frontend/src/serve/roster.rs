//! Roster of joined instances, with the pools and parities that the dispatcher may send to each.
//!
//! Whether an instance can run a pool's parities depends on its models, on the codes, and on pools that may be added
//! later. The models of all instances are therefore kept here and reevaluated after each change of models, codes or
//! settings.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use parking_lot::Mutex;
use parm_dispatch::{Event, InstanceId, InstanceSpec, PoolId, Served, Site};
use parm_protocol::ModelRef;

use super::catalog::Catalog;
use super::coding::{Costs, costs};
use super::driver::Driver;
use super::instance::Instance;
use super::pool::{Description, Pool};

/// Joined instances.
#[derive(Default)]
pub(crate) struct Roster {
    joined: Mutex<BTreeMap<InstanceId, Joined>>,
    /// Costs of stand-ins last sent to the dispatcher.
    costs: Mutex<BTreeMap<PoolId, Costs>>,
    /// Called after the models are listed and before the dispatcher receives them.
    #[cfg(test)]
    pub(crate) before_settling: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

/// A joined instance.
pub(crate) struct Joined {
    instance: Arc<Instance>,
    site: Site,
    models: Vec<Description>,
    slots: u16,
    /// Whether `slots` is the most.
    learns: bool,
    draining: bool,
    /// Specification last sent to the dispatcher.
    told: Option<InstanceSpec>,
}

impl Joined {
    /// An instance with these models that is not draining.
    pub(crate) fn new(
        instance: Arc<Instance>,
        site: Site,
        models: Vec<Description>,
        (slots, learns): (u16, bool),
    ) -> Self {
        Self { instance, site, models, slots, learns, draining: false, told: None }
    }

    /// The same instance, draining or not.
    pub(crate) fn draining(self, draining: bool) -> Self {
        Self { draining, ..self }
    }

    /// Its specification for these pools, and problems of its parity models and stand-ins.
    fn spec(&self, pools: &[Arc<Pool>]) -> (InstanceSpec, Vec<String>) {
        let own = self.instance.pools();
        let slots = own.iter().filter_map(|pool| pool.server_batches()).fold(self.slots, u16::max);
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
                let at_once = pool.server_batches().map_or(self.slots, |most| most.max(self.slots));
                let at_once = NonZeroU16::new(at_once).filter(|most| most.get() < slots);
                serves.push(Served { pool: pool.id, deployed, parity, backup, stand_in, at_once });
            }
        }
        (InstanceSpec { serves, slots, site: self.site, learns: self.learns }, problems)
    }

    /// Sends its specification to the dispatcher if it has changed. That of a draining instance is not sent: the
    /// dispatcher would give it waiting work at once, and an instance that returns is joined anew.
    fn settle(&mut self, driver: &Arc<Driver>, pools: &[Arc<Pool>]) {
        if self.draining {
            return;
        }
        let (spec, problems) = self.spec(pools);
        if self.told.as_ref() == Some(&spec) {
            return;
        }
        for problem in problems {
            tracing::warn!(instance = %self.instance.name, %problem, "instance cannot run parities or stand-ins");
        }
        self.told = Some(spec.clone());
        driver.join(&self.instance, spec);
    }
}

impl Roster {
    /// Adds an instance or updates its models; the dispatcher is informed by `settle`.
    pub(crate) fn join(&self, mut joined: Joined) {
        let mut all = self.joined.lock();
        let known = all.get_mut(&joined.instance.id).filter(|known| !known.draining);
        joined.told = known.and_then(|known| known.told.take());
        all.insert(joined.instance.id, joined);
    }

    /// The models of an instance whose files differ from another instance's of the same version, with the name of that one.
    /// Two instances of this process read one repository, and their descriptions differ only until both are read again.
    pub(crate) fn with_other_files(&self, own: &Instance, models: &[Description]) -> Vec<(ModelRef, String)> {
        let digest =
            |of: &Description| of.config.as_ref().and_then(|config| config.digest().map(str::to_owned));
        let all = self.joined.lock();
        let is_comparable =
            |other: &Instance| other.id != own.id && (other.may_be_shared() || own.may_be_shared());
        let others = || all.values().filter(|joined| is_comparable(&joined.instance));
        let other = |model: &Description| {
            let known = digest(model)?;
            let differs =
                |of: &Description| of.model == model.model && digest(of).is_some_and(|of| of != known);
            let found = others().find(|joined| joined.models.iter().any(differs))?;
            Some((model.model.clone(), found.instance.name.to_string()))
        };
        models.iter().filter_map(other).collect()
    }

    /// Whether no instance has joined with all its models.
    pub(crate) fn is_empty(&self) -> bool {
        self.joined.lock().is_empty()
    }

    /// An instance that serves a pool's model and accepts new work.
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

    /// Stops new work at an instance.
    pub(crate) fn drain(&self, driver: &Arc<Driver>, instance: InstanceId) {
        let mut all = self.joined.lock();
        if let Some(joined) = all.get_mut(&instance) {
            joined.draining = true;
        }
        driver.on(Event::InstanceDraining(instance));
    }

    /// Sends changed specifications of all instances to the dispatcher.
    pub(crate) fn settle(&self, driver: &Arc<Driver>, catalog: &Catalog) {
        // Serialised by the lock, so that the last specification sent is the latest.
        let mut all = self.joined.lock();
        let pools = catalog.all();
        #[cfg(test)]
        self.before_settling();
        all.values_mut().for_each(|joined| joined.settle(driver, &pools));
        self.tell_costs(driver, &pools, &all);
    }

    /// Removes a pool from the dispatcher that the catalog no longer has. A thread that listed the pool before, to send
    /// specifications of instances, is done by then. Otherwise the dispatcher would add the pool again and keep it for ever.
    pub(crate) fn forget(&self, driver: &Arc<Driver>, pool: PoolId) {
        let _alone = self.joined.lock();
        driver.forget(pool);
    }

    /// Stops here if a test wants another thread to go first.
    #[cfg(test)]
    fn before_settling(&self) {
        let hook = self.before_settling.lock().clone();
        hook.into_iter().for_each(|hook| hook());
    }

    /// Like `settle`, for one new instance: otherwise a thousand that join would need a million checks.
    pub(crate) fn settle_one(&self, driver: &Arc<Driver>, catalog: &Catalog, instance: InstanceId) {
        let mut all = self.joined.lock();
        let pools = catalog.all();
        all.get_mut(&instance).into_iter().for_each(|joined| joined.settle(driver, &pools));
        self.tell_costs(driver, &pools, &all);
    }

    /// Sends changed costs of stand-ins to the dispatcher, if servers report measured times.
    fn tell_costs(&self, driver: &Arc<Driver>, pools: &[Arc<Pool>], all: &BTreeMap<InstanceId, Joined>) {
        let mut told = self.costs.lock();
        told.retain(|id, _| pools.iter().any(|pool| pool.id == *id));
        for pool in pools {
            let known = costs(pool, || all.values().map(|joined| joined.models.as_slice()));
            let Some(cost) = known.used().filter(|_| told.get(&pool.id) != Some(&known)) else { continue };
            let Costs { bundled, measured } = known;
            let model = &*pool.model.name;
            tracing::info!(model, bundle = ?bundled, workers = ?measured, "cost of the stand-in for 1, 2, 4 and 8 rows");
            told.insert(pool.id, known);
            driver.on(Event::StandInCost(pool.id, cost));
        }
    }
}
