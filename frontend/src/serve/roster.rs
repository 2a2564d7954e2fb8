//! Roster of joined instances, with the pools and parities that the dispatcher may send to each.
//!
//! Whether an instance can run a pool's parities depends on its models, on the codes, and on pools that may be added
//! later. The models of all instances are therefore kept here and reevaluated after each change of models, codes or
//! settings. Nobody else tells the dispatcher what instances offer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parm_dispatcher::{InstanceSpec, Offered, Site};
use parm_protocol::ModelRef;

use super::catalog::Catalog;
use super::driver::Driver;
use super::instance::{Instance, InstanceId};
use super::lines::Keys;
use super::pool::{Description, Pool, PoolId};

/// Joined instances.
#[derive(Default)]
pub(crate) struct Roster {
    joined: BTreeMap<InstanceId, Joined>,
}

/// A joined instance.
pub(crate) struct Joined {
    pub(crate) instance: Arc<Instance>,
    pub(crate) site: Site,
    pub(crate) models: Vec<Description>,
    pub(crate) slots: u16,
    /// Whether `slots` is the most.
    pub(crate) learns: bool,
    pub(crate) draining: bool,
    /// Specification last sent to the dispatcher.
    pub(crate) told: Option<InstanceSpec>,
}

impl Joined {
    /// Whether it can run a pool's model, and its parities; and why not, if it should.
    fn can_run(&self, pool: &Pool) -> (bool, Result<bool, String>) {
        let deployed = self.instance.pools().iter().any(|known| known.id == pool.id);
        (deployed, pool.codes().parity_at(&self.models, deployed))
    }

    /// What it offers, and problems of its parity models and stand-ins.
    fn spec(&self, pools: &[Arc<Pool>], roles: &Roles) -> (InstanceSpec, Vec<String>) {
        let own = self.instance.pools();
        let stated = self.instance.stated_slots().unwrap_or(self.slots);
        let slots = own.iter().filter_map(|pool| pool.server_batches()).fold(stated, u16::max);
        let mut problems = Vec::new();
        let mut models = Vec::new();
        for pool in pools {
            let Some(keys) = roles.keys.get(&pool.id) else { continue };
            let (deployed, parity) = self.can_run(pool);
            let parity = parity.unwrap_or_else(|problem| {
                problems.push(problem);
                false
            });
            let is_apart = roles.apart.contains(&(pool.id, self.instance.id));
            let codes = pool.codes();
            let backup = codes.backup_at(&self.models);
            let found = codes.stand_in_at(&self.models);
            let problem = found.and_then(|(stand_in, served)| stand_in.problem(pool, served));
            let stand_in = found.is_some() && problem.is_none();
            problems.extend(problem);
            let at_once = pool.server_batches().map_or(stated, |most| most.max(stated));
            let at_once = Some(at_once).filter(|most| *most < slots);
            let helps = is_apart || !keys.is_apart;
            let offered = [
                Some(keys.own).filter(|_| deployed && !is_apart),
                keys.helper.filter(|_| helps && (backup || stand_in)),
                keys.parity.filter(|_| helps && parity),
            ];
            models.extend(offered.into_iter().flatten().map(|model| Offered { model, at_once }));
        }
        (InstanceSpec { models, slots, site: self.site, learns: self.learns }, problems)
    }

    /// Sends its specification to the dispatcher if it has changed. That of a draining instance is not sent: the
    /// dispatcher would give it waiting work at once, and an instance that returns is joined anew.
    fn settle(&mut self, driver: &Arc<Driver>, pools: &[Arc<Pool>], roles: &Roles) {
        if self.draining {
            return;
        }
        let (spec, problems) = self.spec(pools, roles);
        if self.told.as_ref() == Some(&spec) {
            return;
        }
        for problem in problems {
            tracing::warn!(instance = %self.instance.name, %problem, "instance cannot run parities or stand-ins");
        }
        driver.join(&self.instance, &spec);
        self.told = Some(spec);
    }
}

/// The dispatcher's names for the models of pools, and which instances run only parities or the backup model of which pools.
struct Roles {
    keys: BTreeMap<PoolId, Keys>,
    apart: BTreeSet<(PoolId, InstanceId)>,
}

impl Roles {
    fn of(driver: &Arc<Driver>, pools: &[Arc<Pool>], all: &BTreeMap<InstanceId, Joined>) -> Self {
        let keys = driver.with(|state| state.model_keys());
        let mut apart = BTreeSet::new();
        for pool in pools.iter().filter(|pool| keys.get(&pool.id).is_some_and(|keys| keys.is_apart)) {
            let present = all.iter().filter(|(_, joined)| !joined.draining);
            let (mut able, mut instances) = (Vec::new(), 0);
            for (id, joined) in present {
                let (deployed, parity) = joined.can_run(pool);
                let helps = parity.unwrap_or(false) || pool.codes().backup_at(&joined.models);
                instances += usize::from(deployed || helps);
                // First those that can run nothing else, then the latest.
                able.extend(helps.then_some((deployed, std::cmp::Reverse(*id))));
            }
            able.sort_unstable();
            let wanted =
                driver.with(|state| state.pools.get(&pool.id).map_or(0, |lines| lines.apart(instances)));
            let alone = able.iter().filter(|(deployed, _)| !deployed).count();
            let chosen = able.into_iter().take(wanted.max(alone));
            apart.extend(chosen.map(|(_, std::cmp::Reverse(id))| (pool.id, id)));
        }
        Self { keys, apart }
    }
}

impl Roster {
    /// Adds an instance or updates its models; the dispatcher is informed by `settle`.
    pub(crate) fn join(&mut self, mut joined: Joined) {
        let known = self.joined.get_mut(&joined.instance.id).filter(|known| !known.draining);
        joined.told = known.and_then(|known| known.told.take());
        self.joined.insert(joined.instance.id, joined);
    }

    /// The models of an instance whose files differ from another instance's of the same version, with the name of that one.
    /// Two instances of this process read one repository, and their descriptions differ only until both are read again.
    pub(crate) fn with_other_files(&self, own: &Instance, models: &[Description]) -> Vec<(ModelRef, String)> {
        let digest =
            |of: &Description| of.config.as_ref().and_then(|config| config.digest().map(str::to_owned));
        let is_comparable =
            |other: &Instance| other.id != own.id && (other.may_be_shared() || own.may_be_shared());
        let others = || self.joined.values().filter(|joined| is_comparable(&joined.instance));
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
        self.joined.is_empty()
    }

    /// An instance that serves a pool's model and accepts new work.
    pub(crate) fn one_of(&self, pool: &Pool) -> Option<Arc<Instance>> {
        let serves = |joined: &&Joined| {
            !joined.draining && joined.instance.pools().iter().any(|known| known.id == pool.id)
        };
        self.joined.values().find(serves).map(|joined| joined.instance.clone())
    }

    /// Removes an instance, which gets no more jobs.
    pub(crate) fn remove(&mut self, driver: &Arc<Driver>, instance: InstanceId) {
        self.joined.remove(&instance);
        driver.leave(instance);
    }

    /// Stops new work at an instance.
    pub(crate) fn drain(&mut self, driver: &Arc<Driver>, instance: InstanceId) {
        if let Some(joined) = self.joined.get_mut(&instance) {
            joined.draining = true;
        }
        driver.drain(instance);
    }

    /// Sends changed specifications to the dispatcher: those of all instances, or of a new one alone, unless another may have to run
    /// parities now. Otherwise a thousand instances that join would need a million checks.
    pub(crate) fn settle(&mut self, driver: &Arc<Driver>, catalog: &Catalog, only: Option<InstanceId>) {
        let pools = catalog.all();
        let roles = Roles::of(driver, &pools, &self.joined);
        let only = only.filter(|_| roles.keys.values().all(|keys| !keys.is_apart));
        let settled = self.joined.iter_mut().filter(|(id, _)| only.is_none_or(|only| **id == only));
        settled.for_each(|(_, joined)| joined.settle(driver, &pools, &roles));
    }
}
