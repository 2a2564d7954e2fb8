//! Which instances there are and what they serve: they join, drain and leave, and models come and go with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parm_dispatch::{InstanceId, PoolId, Site};

use super::Core;
use crate::console::{Happening, Kind};
use crate::error::Error;
use crate::serve::catalog::Admitted;
use crate::serve::instance::Instance;
use crate::serve::pool::{Description, Pool};
use crate::serve::roster::Joined;

/// What became of an instance that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It may well come back: its models stay known.
    Lost,
    /// It was taken away: models that only it served are forgotten.
    Removed,
}

impl Core {
    /// A name for an instance, never given before.
    pub(crate) fn next_instance(&self) -> InstanceId {
        InstanceId(self.instances.fetch_add(1, Ordering::Relaxed))
    }

    /// An instance joins with these models, or serves these from now on, or stands elsewhere. Models that are not what other instances serve
    /// are refused; without any model left the instance does not join. Returns what was refused.
    pub(crate) fn join(
        self: &Arc<Self>,
        instance: &Arc<Instance>,
        site: Site,
        models: Vec<Description>,
    ) -> Vec<Error> {
        let mut refused = Vec::new();
        let mut pools = Vec::new();
        let known = self.pool_ids();
        for description in &models {
            match self.admit(description.clone(), instance) {
                Ok(pool) => pools.push(pool),
                Err(error) => refused.push(error),
            }
        }
        let before = instance.pools();
        instance.set_pools(pools.clone());
        if pools.is_empty() {
            self.roster.remove(instance.id);
            self.driver.leave(instance.id);
        } else {
            let slots = self.config.instances.slots.get();
            self.roster.join(Joined::new(instance.clone(), site, models, slots));
            if self.pool_ids() == known {
                self.roster.settle_one(&self.driver, &self.catalog, instance.id);
            } else {
                self.roster.settle(&self.driver, &self.catalog);
            }
            self.examine();
        }
        for pool in before.iter().filter(|pool| !pools.iter().any(|kept| kept.id == pool.id)) {
            pool.leave(instance.id);
            self.forget_unserved(pool);
        }
        self.weigh(before.iter().chain(&pools));
        refused
    }

    fn pool_ids(&self) -> Vec<PoolId> {
        self.catalog.all().iter().map(|pool| pool.id).collect()
    }

    fn admit(&self, description: Description, instance: &Instance) -> Result<Arc<Pool>, Error> {
        // Before the catalog is locked: who changes settings locks them in this order too.
        let policy = self.settings.lock().of(&description.model.name).policy;
        let Admitted { pool, is_new, replaced } =
            self.catalog.admit(description, instance, |id, description| {
                let version = description.model.version.clone().unwrap_or_default();
                let metrics = self.metrics.pool(&description.model.name, &version, policy);
                let whole = self.config.unbatched.contains(&description.model.name);
                Pool::new(id, description, metrics, whole)
            })?;
        if is_new {
            let versions = self.catalog.versions(&pool.model.name);
            let other = versions.iter().rev().find(|other| other.id != pool.id);
            if let Some(before) = replaced.as_ref().or(other) {
                self.driver.version_added(pool.id, before.id);
            }
        }
        if let Some(replaced) = replaced {
            self.forget(replaced.id);
        }
        if is_new {
            self.apply_settings(&pool);
            self.stand_in_came(&pool);
            self.tell_model(&pool, "is served");
        }
        Ok(pool)
    }

    /// An instance gets no more work; what it holds it will still complete.
    pub(crate) fn drain(&self, instance: &Instance) {
        self.roster.drain(&self.driver, instance.id);
        let pools = instance.pools();
        pools.iter().for_each(|pool| pool.drain(instance.id));
        self.weigh(&pools);
    }

    /// An instance is gone.
    pub(crate) fn leave(&self, instance: &Instance, departure: Departure) {
        self.roster.remove(instance.id);
        self.driver.leave(instance.id);
        let pools = instance.pools();
        for pool in &pools {
            pool.leave(instance.id);
            if departure == Departure::Removed {
                self.forget_unserved(pool);
            }
        }
        instance.set_pools(Vec::new());
        self.weigh(&pools);
        self.vacated.notify_waiters();
    }

    fn forget_unserved(&self, pool: &Pool) {
        self.vacated.notify_waiters();
        if self.catalog.remove_unserved(pool) {
            tracing::info!(model = %pool.model.name, version = %pool.version, "no instance serves the model any more");
            self.forget(pool.id);
            self.tell_model(pool, "is served by no instance any more");
        }
    }

    /// Forgets a model that the catalog has no more. A change of settings that listed it before is through by then, or finds
    /// it gone: otherwise the dispatcher would set the model up again and keep it for ever.
    fn forget(&self, pool: PoolId) {
        let _alone = self.applying.lock();
        self.roster.forget(&self.driver, pool);
    }

    /// Tells people of a model that came or went.
    fn tell_model(&self, pool: &Pool, what: &str) {
        let version = if pool.version.is_empty() { String::new() } else { format!(" {}", pool.version) };
        let text = format!("{}{version} {what}", pool.model.name);
        self.driver.tell(Kind::Model, Happening { model: Some(pool.id), text, ..Happening::default() });
    }

    /// Other instances serve these now.
    fn weigh<'a>(&self, pools: impl IntoIterator<Item = &'a Arc<Pool>>) {
        let share = self.config.instances.version_share.get();
        pools.into_iter().for_each(|pool| self.catalog.weigh(&pool.model.name, share));
    }
}
