//! What a frontend is made of, shared by its service, its instances' supervisors and its admin API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::catalog::{Admitted, Catalog};
use super::clock::Timers;
use super::coding;
use super::driver::Driver;
use super::instance::Instance;
use super::pool::{Description, Pool};
use crate::config::Config;
use crate::dispatch::{Event, InstanceId, InstanceSpec, NodeId, PoolSettings, Served, Settings};
use crate::error::Error;
use crate::metrics::{self, Metrics};

/// The parts of a frontend.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) driver: Arc<Driver>,
    pub(crate) catalog: Catalog,
    pub(crate) metrics: Metrics,
    settings: Mutex<PoolSettingsByModel>,
    draining: AtomicBool,
    active: AtomicUsize,
    instances: AtomicU32,
    idle: Notify,
}

/// Dispatch settings in force: those of the configuration until the admin API changes them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolSettingsByModel {
    pub(crate) default: PoolSettings,
    pub(crate) models: BTreeMap<String, PoolSettings>,
}

/// Counts a request as active while it lives.
pub(crate) struct Active<'a>(&'a Core);

/// What became of an instance that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It may well come back: its models stay known.
    Lost,
    /// It was taken away: models that only it served are forgotten.
    Removed,
}

impl Core {
    /// Must be called inside a runtime.
    pub(crate) fn start(config: Config, timers: Timers) -> Result<Arc<Self>, Error> {
        coding::check(&config.dispatch)?;
        config.models.values().try_for_each(coding::check)?;
        let settings = Settings::uniform(config.dispatch.clone());
        Ok(Arc::new(Self {
            driver: Driver::start(config.instances.clone(), settings, timers)
                .map_err(|error| Error::Timer { reason: error.to_string() })?,
            catalog: Catalog::default(),
            metrics: Metrics::new(),
            settings: Mutex::new(PoolSettingsByModel {
                default: config.dispatch.clone(),
                models: config.models.clone(),
            }),
            draining: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            instances: AtomicU32::new(0),
            idle: Notify::new(),
            config,
        }))
    }

    /// A name for an instance, never given before.
    pub(crate) fn next_instance(&self) -> InstanceId {
        InstanceId(self.instances.fetch_add(1, Ordering::Relaxed))
    }

    /// An instance joins with these models, or serves these from now on. Models that are not what other instances serve
    /// are refused; without any model left the instance does not join. Returns what was refused.
    pub(crate) fn join(
        &self,
        instance: &Arc<Instance>,
        node: Option<NodeId>,
        models: Vec<Description>,
    ) -> Vec<Error> {
        let mut refused = Vec::new();
        let mut pools = Vec::new();
        for description in models {
            match self.admit(description, instance) {
                Ok(pool) => pools.push(pool),
                Err(error) => {
                    self.metrics.disagreements.inc();
                    refused.push(error);
                }
            }
        }
        let before = instance.pools();
        instance.set_pools(pools.clone());
        if pools.is_empty() {
            self.driver.leave(instance.id);
        } else {
            let serves = pools.iter().map(|pool| Served::deployed(pool.id)).collect();
            let spec = InstanceSpec { serves, slots: self.config.instances.slots.get(), node };
            self.driver.join(instance, spec);
        }
        for pool in before.iter().filter(|pool| !pools.iter().any(|kept| kept.id == pool.id)) {
            pool.leave(instance.id);
            self.forget_unserved(pool);
        }
        refused
    }

    /// An instance is gone.
    pub(crate) fn leave(&self, instance: &Instance, departure: Departure) {
        self.driver.leave(instance.id);
        for pool in instance.pools() {
            pool.leave(instance.id);
            if departure == Departure::Removed {
                self.forget_unserved(&pool);
            }
        }
        instance.set_pools(Vec::new());
    }

    fn admit(&self, description: Description, instance: &Instance) -> Result<Arc<Pool>, Error> {
        let Admitted { pool, is_new, replaced } =
            self.catalog.admit(description, instance, |id, description| {
                let policy = self.settings.lock().of(&description.model.name).policy;
                let version = description.model.version.clone().unwrap_or_default();
                let metrics = self.metrics.pool(&description.model.name, &version, policy);
                Pool::new(id, description, metrics)
            })?;
        pool.join(instance.id);
        if let Some(replaced) = replaced {
            self.driver.on(Event::PoolRemoved(replaced.id));
        }
        if is_new {
            self.apply_settings(&pool);
        }
        Ok(pool)
    }

    fn forget_unserved(&self, pool: &Pool) {
        if self.catalog.remove_unserved(pool) {
            tracing::info!(model = %pool.model.name, version = %pool.version, "no instance serves the model any more");
            self.driver.on(Event::PoolRemoved(pool.id));
        }
    }

    /// Dispatch settings in force.
    pub(crate) fn settings(&self) -> PoolSettingsByModel {
        self.settings.lock().clone()
    }

    /// Changes dispatch settings; queries under way stay. If `change` fails nothing is changed.
    pub(crate) fn change_settings(
        &self,
        change: impl FnOnce(&mut PoolSettingsByModel) -> Result<(), Error>,
    ) -> Result<PoolSettingsByModel, Error> {
        let changed = {
            let mut settings = self.settings.lock();
            let mut next = settings.clone();
            change(&mut next)?;
            coding::check(&next.default)?;
            next.models.values().try_for_each(coding::check)?;
            *settings = next.clone();
            next
        };
        for pool in self.catalog.all() {
            self.apply_settings(&pool);
        }
        Ok(changed)
    }

    fn apply_settings(&self, pool: &Pool) {
        let mut settings = self.settings.lock().of(&pool.model.name).clone();
        if let Some(most) = pool.max_batch().and_then(std::num::NonZeroU16::new) {
            settings.batch.max_size = settings.batch.max_size.min(most);
        }
        pool.coded.store(coding::mixes(settings.policy), Ordering::Relaxed);
        self.metrics.policy_changed(&pool.metrics, settings.policy);
        self.driver.on(Event::SettingsChanged(pool.id, Box::new(settings)));
    }

    /// Counts a request in.
    pub(crate) fn enter(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Waits until no request is active.
    pub(crate) async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.active.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// The metrics page.
    pub(crate) fn page(&self, instances: metrics::InstanceCounts) -> String {
        for pool in self.catalog.all() {
            if let Some(status) = self.driver.status(pool.id) {
                pool.metrics.refresh(&status);
            }
        }
        self.metrics.count_instances(instances);
        self.metrics.text()
    }
}

impl PoolSettingsByModel {
    /// The settings of a model.
    pub(crate) fn of(&self, model: &str) -> &PoolSettings {
        self.models.get(model).unwrap_or(&self.default)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
