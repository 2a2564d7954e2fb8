//! Instances of the frontend and their models: they join, drain and leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_dispatcher::Site;

use super::{Control, Core};
use crate::console::{Happening, Kind};
use crate::error::Error;
use crate::serve::catalog::Admitted;
use crate::serve::instance::{Instance, InstanceId};
use crate::serve::pool::{Description, Pool, PoolId, takes_batches};
use crate::serve::roster::Joined;
use crate::upstreams::is_upstream;

/// Share of a model's instances that must serve a new version before requests without a version go there. The first instance with
/// a new version cannot carry the load of all.
const VERSION_SHARE: f64 = 0.5;

/// Reason for an instance's departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It may come back: its models stay known.
    Lost,
    /// It was removed: models that only it served are forgotten.
    Removed,
}

impl Core {
    /// A new, unused instance id.
    pub(crate) fn next_instance(&self) -> InstanceId {
        InstanceId(self.instances.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds an instance with these models, or updates its models or place. Models that differ from those of other
    /// instances are rejected; an instance without any other model does not join. One that is `draining` gets no work.
    /// Returns the errors of rejected models.
    pub(crate) fn join(
        self: &Arc<Self>,
        instance: &Arc<Instance>,
        site: Site,
        models: Vec<Description>,
        draining: bool,
    ) -> Vec<Error> {
        let control = &mut *self.control.lock();
        let mut refused = Vec::new();
        let mut pools = Vec::new();
        let known = self.pool_ids();
        for description in &models {
            match self.admit(control, description.clone(), instance) {
                Ok(pool) => pools.push(pool),
                Err(error) => refused.push(error),
            }
        }
        let states =
            |model: &Description| model.config.as_ref().is_some_and(|config| config.digest().is_some());
        instance.states_files.store(models.iter().any(states), Ordering::Relaxed);
        let before = instance.pools();
        instance.set_pools(pools.clone());
        if pools.is_empty() {
            control.roster.remove(&self.driver, instance.id);
        } else {
            let (slots, learns) = match is_upstream(&instance.name) {
                true => (self.config.upstreams.concurrency.get(), true),
                false => (self.config.instances.slots.get(), false),
            };
            self.tell_other_files(control, instance, &models);
            let (own, told) = (instance.clone(), None);
            control.roster.join(Joined { instance: own, site, models, slots, learns, draining, told });
            if draining {
                self.stop_work(control, instance);
            }
            let changed = self.apply_statements(control, &pools);
            let only = Some(instance.id).filter(|_| !changed && self.pool_ids() == known);
            control.roster.settle(&self.driver, &self.catalog, only);
            self.examine(control);
        }
        for pool in before.iter().filter(|pool| !pools.iter().any(|kept| kept.id == pool.id)) {
            self.vacate(pool, instance.id);
            self.forget_unserved(pool);
        }
        self.settle_statements(control, &before);
        self.weigh(before.iter().chain(&pools));
        refused
    }

    /// Warns if an instance has other files of a version than the others: answers depend on who gives them.
    fn tell_other_files(&self, control: &Control, instance: &Instance, models: &[Description]) {
        for (model, other) in control.roster.with_other_files(instance, models) {
            let version = model.version.as_deref().unwrap_or_default();
            let text = format!(
                "{}: version {version} of {} is another file than at {other}: answers differ by instance: serve the same files \
                 everywhere, or under another version",
                instance.name, model.name
            );
            tracing::warn!("{text}");
            self.driver.tell(Kind::Model, Happening { text, ..Happening::default() });
        }
    }

    fn pool_ids(&self) -> Vec<PoolId> {
        self.catalog.all().iter().map(|pool| pool.id).collect()
    }

    fn admit(
        &self,
        control: &Control,
        description: Description,
        instance: &Instance,
    ) -> Result<Arc<Pool>, Error> {
        let policy = control.settings.of(&description.model.name).policy;
        let whole = self.config.unbatched.contains(&description.model.name)
            || !takes_batches(&description.metadata, description.config.as_ref());
        let Admitted { pool, is_new, replaced } =
            self.catalog.admit(description, whole, instance, |id, description, whole| {
                let version = description.model.version.clone().unwrap_or_default();
                let metrics = self.metrics.models.of([&description.model.name, &version], policy);
                Pool::new(id, description, metrics, whole)
            })?;
        if is_new {
            let versions = self.catalog.versions(&pool.model.name);
            let other = versions.iter().rev().find(|other| other.id != pool.id);
            self.driver.add(&pool, replaced.as_ref().or(other).map(|before| before.id));
        }
        if let Some(replaced) = replaced {
            self.driver.forget(replaced.id);
            if replaced.members.has_others(instance.id) {
                let rows = if pool.batched { "are split again" } else { "stay whole" };
                tracing::warn!(model = %pool.model.name, instance = %instance.name, "max_batch_size changed: requests {rows}");
                self.regrouped.send_modify(|count| *count += 1);
            }
        }
        if is_new {
            self.apply_settings(control, &pool);
            self.stand_in_came(control, &pool);
            self.tell_model(&pool, "is served");
        }
        Ok(pool)
    }

    /// Stops sending work to an instance; it completes its jobs.
    pub(crate) fn drain(&self, instance: &Instance) {
        self.stop_work(&mut self.control.lock(), instance);
    }

    fn stop_work(&self, control: &mut Control, instance: &Instance) {
        control.roster.drain(&self.driver, instance.id);
        let pools = instance.pools();
        pools.iter().for_each(|pool| pool.members.drain(instance.id));
        self.weigh(&pools);
    }

    /// Removes an instance.
    pub(crate) fn leave(self: &Arc<Self>, instance: &Instance, departure: Departure) {
        let control = &mut *self.control.lock();
        control.roster.remove(&self.driver, instance.id);
        let pools = instance.pools();
        for pool in &pools {
            self.vacate(pool, instance.id);
            match departure {
                Departure::Removed => self.forget_unserved(pool),
                Departure::Lost => pool.lose(instance.number),
            }
        }
        instance.set_pools(Vec::new());
        self.weigh(&pools);
        self.vacated.notify_waiters();
        self.settle_statements(control, &pools);
    }

    /// Forgets the models that an instance had when it was lost, if it is back without them or is removed, and no other
    /// can bring them back. A fleet that restarts with every new version would otherwise keep all versions.
    pub(crate) fn is_back(&self, number: u32) {
        let _control = self.control.lock();
        self.catalog
            .all()
            .iter()
            .filter(|pool| pool.give_up(number))
            .for_each(|pool| self.forget_unserved(pool));
    }

    /// Removes an instance from a pool. Others join again if only this one required whole requests.
    fn vacate(&self, pool: &Pool, instance: InstanceId) {
        pool.members.leave(instance);
        if pool.is_whole_in_vain() {
            self.regrouped.send_modify(|count| *count += 1);
        }
    }

    /// Derives the settings of these pools again if their instances state another limit or other files of the model.
    /// Returns whether any did.
    fn apply_statements(&self, control: &Control, pools: &[Arc<Pool>]) -> bool {
        let changed: Vec<_> = pools.iter().filter(|pool| pool.members.have_changed()).collect();
        for pool in &changed {
            self.apply_settings(control, pool);
            self.stand_in_came(control, pool);
        }
        !changed.is_empty()
    }

    /// The same after an instance has left, with what follows for the others.
    fn settle_statements(self: &Arc<Self>, control: &mut Control, pools: &[Arc<Pool>]) {
        if self.apply_statements(control, pools) {
            control.roster.settle(&self.driver, &self.catalog, None);
            self.examine(control);
        }
    }

    fn forget_unserved(&self, pool: &Pool) {
        self.vacated.notify_waiters();
        if self.catalog.remove_unserved(pool) {
            self.metrics.models.forget(&pool.metrics);
            tracing::info!(model = %pool.model.name, version = %pool.version, "the last instance of the model is gone");
            self.driver.forget(pool.id);
            self.tell_model(pool, "has no instances left");
        }
    }

    /// Reports a model that was added or removed to the event log.
    fn tell_model(&self, pool: &Pool, what: &str) {
        let version = if pool.version.is_empty() { String::new() } else { format!(" {}", pool.version) };
        let text = format!("{}{version} {what}", pool.model.name);
        self.driver.tell_of(pool, text);
    }

    /// Recomputes default versions after instances changed.
    fn weigh<'a>(&self, pools: impl IntoIterator<Item = &'a Arc<Pool>>) {
        pools.into_iter().for_each(|pool| self.catalog.weigh(&pool.model.name, VERSION_SHARE));
    }
}
