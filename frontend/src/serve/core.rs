//! What a frontend is made of, shared by its service, its instances' supervisors and its admin API.

mod trial;

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatch::{InForce, InstanceId, NodeId, PolicyKind, PoolSettings, Settings, StandInSettings};
use parm_protocol::ModelRef;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::catalog::{Admitted, Catalog};
use super::clock::Timers;
use super::coding::{self, Codes, Library, LoadNets, Plan, StandIn, StandInStanding, Standing};
use super::driver::Driver;
use super::instance::Instance;
use super::pool::{Description, Pool};
use super::roster::{Joined, Roster};
use crate::config::Config;
use crate::error::Error;
use crate::metrics::{self, Metrics};

/// The parts of a frontend.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) driver: Arc<Driver>,
    pub(crate) catalog: Catalog,
    pub(crate) metrics: Metrics,
    /// Told when an instance has left a model: one that was refused for its sake may be taken now.
    pub(crate) vacated: Notify,
    settings: Mutex<PoolSettingsByModel>,
    draining: AtomicBool,
    active: AtomicUsize,
    instances: AtomicU32,
    idle: Notify,
    library: Library,
    roster: Roster,
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
    pub(crate) fn start(
        config: Config,
        timers: Timers,
        nets: Option<Arc<dyn LoadNets>>,
    ) -> Result<Arc<Self>, Error> {
        let library = Library::open(config.bundles.clone(), nets);
        check(&config.dispatch, &library)?;
        config.models.values().try_for_each(|own| check(own, &library))?;
        let settings = Settings::uniform(config.dispatch.clone());
        let core = Arc::new(Self {
            driver: Driver::start(config.instances.clone(), settings, timers)
                .map_err(|error| Error::Timer { reason: error.to_string() })?,
            catalog: Catalog::default(),
            metrics: Metrics::new(),
            vacated: Notify::new(),
            settings: Mutex::new(PoolSettingsByModel {
                default: config.dispatch.clone(),
                models: config.models.clone(),
            }),
            draining: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            instances: AtomicU32::new(0),
            idle: Notify::new(),
            library,
            roster: Roster::default(),
            config,
        });
        if core.library.exists() {
            let follow = follow(Arc::downgrade(&core));
            core.driver.lifelines.spawn(&Handle::current(), "the look for changed bundles", follow);
        }
        Ok(core)
    }

    /// A name for an instance, never given before.
    pub(crate) fn next_instance(&self) -> InstanceId {
        InstanceId(self.instances.fetch_add(1, Ordering::Relaxed))
    }

    /// An instance joins with these models, or serves these from now on. Models that are not what other instances serve
    /// are refused; without any model left the instance does not join. Returns what was refused.
    pub(crate) fn join(
        self: &Arc<Self>,
        instance: &Arc<Instance>,
        node: Option<NodeId>,
        models: Vec<Description>,
    ) -> Vec<Error> {
        let mut refused = Vec::new();
        let mut pools = Vec::new();
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
            self.roster.join(Joined::new(instance.clone(), node, (models, slots)));
            self.roster.settle(&self.driver, &self.catalog);
            self.examine();
        }
        for pool in before.iter().filter(|pool| !pools.iter().any(|kept| kept.id == pool.id)) {
            pool.leave(instance.id);
            self.forget_unserved(pool);
        }
        self.weigh(before.iter().chain(&pools));
        refused
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

    /// Other instances serve these now.
    fn weigh<'a>(&self, pools: impl IntoIterator<Item = &'a Arc<Pool>>) {
        let share = self.config.instances.version_share.get();
        pools.into_iter().for_each(|pool| self.catalog.weigh(&pool.model.name, share));
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
        if let Some(replaced) = replaced {
            self.driver.forget(replaced.id);
        }
        if is_new {
            self.apply_settings(&pool);
            self.stand_in_came(&pool);
        }
        Ok(pool)
    }

    fn forget_unserved(&self, pool: &Pool) {
        self.vacated.notify_waiters();
        if self.catalog.remove_unserved(pool) {
            tracing::info!(model = %pool.model.name, version = %pool.version, "no instance serves the model any more");
            self.driver.forget(pool.id);
        }
    }

    /// Dispatch settings in force.
    pub(crate) fn settings(&self) -> PoolSettingsByModel {
        self.settings.lock().clone()
    }

    /// What is in force of the settings, by model and version; of one model only if it is named.
    pub(crate) fn standings(&self, of: Option<&str>) -> BTreeMap<String, BTreeMap<String, Standing>> {
        let mut standings = BTreeMap::<_, BTreeMap<_, _>>::new();
        for pool in self.catalog.all().iter().filter(|pool| of.is_none_or(|name| pool.model.name == name)) {
            if let Some(mut standing) = pool.standing() {
                standing.stand_in = self.stand_in_standing(pool);
                let versions = standings.entry(pool.model.name.clone()).or_default();
                versions.insert(pool.version.clone(), standing);
            }
        }
        standings
    }

    fn stand_in_standing(&self, pool: &Pool) -> Option<StandInStanding> {
        let model = pool.codes().stand_in.as_ref()?.model.name.clone();
        let status = self.driver.status(pool.id)?;
        let cost = status.stand_in_cost.map(|cost| cost.rows);
        Some(StandInStanding { model, cost, agreement: status.agreement, withheld: status.withheld })
    }

    /// An instance gets no more work; what it holds it will still complete.
    pub(crate) fn drain(&self, instance: &Instance) {
        self.roster.drain(&self.driver, instance.id);
        let pools = instance.pools();
        pools.iter().for_each(|pool| pool.drain(instance.id));
        self.weigh(&pools);
    }

    /// Changes dispatch settings; queries under way stay. If `change` fails nothing is changed, nor if a policy is wanted
    /// for which there are no codes: `of` names the model that the change is about, or none for all.
    pub(crate) fn change_settings(
        self: &Arc<Self>,
        of: Option<&str>,
        change: impl FnOnce(&mut PoolSettingsByModel) -> Result<(), Error>,
    ) -> Result<PoolSettingsByModel, Error> {
        let pools = self.catalog.all();
        let changed = {
            let mut settings = self.settings.lock();
            let mut next = settings.clone();
            change(&mut next)?;
            check(&next.default, &self.library)?;
            next.models.values().try_for_each(|own| check(own, &self.library))?;
            self.check_plans(&pools, &next, of)?;
            *settings = next.clone();
            next
        };
        pools.iter().for_each(|pool| self.apply_settings(pool));
        self.roster.settle(&self.driver, &self.catalog);
        self.examine();
        Ok(changed)
    }

    /// Settings that no served model of those concerned could follow are a mistake.
    fn check_plans(
        &self,
        pools: &[Arc<Pool>],
        settings: &PoolSettingsByModel,
        of: Option<&str>,
    ) -> Result<(), Error> {
        let mut problem = None;
        let concerned = |pool: &&Arc<Pool>| match of {
            Some(name) => pool.model.name == name,
            None => !settings.models.contains_key(&pool.model.name),
        };
        for pool in pools.iter().filter(concerned) {
            match self.plan(pool, settings.of(&pool.model.name)) {
                Ok(_) => return Ok(()),
                Err(reason) => {
                    let name = &pool.model.name;
                    problem.get_or_insert_with(|| format!("model '{name}' cannot be coded so: {reason}"));
                }
            }
        }
        problem.map_or(Ok(()), |reason| Err(Error::BadSettings { reason }))
    }

    fn plan(&self, pool: &Pool, settings: &PoolSettings) -> Result<Plan, String> {
        let bundle = self.library.bundle(&pool.model.name, &pool.version);
        let mut settings = settings.clone();
        if !trial::passed(pool, &settings, bundle.as_deref())? {
            settings.policy = PolicyKind::Hedge;
        }
        let plan = coding::plan(pool, &settings, bundle.as_deref(), self.config.requests.codable_magnitude)?;
        let problem = self.stand_in_of(&plan.codes).and_then(|served| StandIn::misfit(pool, &served));
        problem.map_or(Ok(plan), Err)
    }

    /// Puts a pool's settings in force. One that cannot be coded as they say is hedged instead, and the log says why: the
    /// settings for all models hold for parity models too, which have no parities of their own.
    fn apply_settings(&self, pool: &Arc<Pool>) {
        let wished = self.settings.lock().of(&pool.model.name).clone();
        let mut not_coded = None;
        let is_stand_in = wished.stand_in.model.as_ref() == Some(&pool.model.name);
        let plan = self.plan(pool, &wished).or_else(|reason| {
            let model = &pool.model.name;
            if is_stand_in || self.library.part_of(model).is_some() {
                // Nobody expects it.
            } else if wished.coding.code.is_some() {
                tracing::warn!(%model, %reason, "not coded as coding.code says: its late queries are hedged instead");
            } else {
                tracing::info!(%model, %reason, "not coded: its late queries are hedged instead");
            }
            not_coded = Some(reason);
            self.plan(pool, &PoolSettings { policy: PolicyKind::Hedge, ..wished.clone() })
        });
        let uncoded = |_| Plan { in_force: InForce::as_wished(&wished), codes: Codes::default() };
        let Plan { in_force, codes } = plan.unwrap_or_else(uncoded);
        pool.set_codes(codes);
        pool.set_standing(Standing { in_force: in_force.clone(), not_coded, stand_in: None });
        self.metrics.policy_changed(&pool.metrics, in_force.policy);
        let wished = PoolSettings { stand_in: self.stand_in_settings(pool, &wished), ..wished };
        self.driver.configure(pool, wished, in_force);
    }

    /// What a model is to another that it only stands in for, if it is.
    pub(crate) fn serves_others(&self, model: &str) -> Option<String> {
        if let Some(part) = self.library.part_of(model) {
            return Some(part);
        }
        let serves = |pool: &Arc<Pool>| {
            let codes = pool.codes();
            let stand_in = codes.stand_in.as_ref().map(|stand_in| (&stand_in.model, "stand-in"));
            let backup = codes.backup.as_ref().map(|backup| (backup, "backup model"));
            let (_, what) = stand_in.into_iter().chain(backup).find(|(known, _)| known.name == model)?;
            Some(format!("{what} of '{}'", pool.model.name))
        };
        self.catalog.all().iter().find_map(serves)
    }

    /// The pool's stand-in as it is served, if it is by now; a server that names no versions has the one that is meant.
    fn stand_in_of(&self, codes: &Codes) -> Option<Description> {
        let wanted = &codes.stand_in.as_ref()?.model;
        let unnamed = || ModelRef { version: Some(String::new()), ..wanted.clone() };
        let served = self.catalog.find(wanted).or_else(|_| self.catalog.find(&unnamed()));
        served.ok().map(|pool| pool.description())
    }

    /// Jobs of a stand-in have no more rows than it takes.
    fn stand_in_settings(&self, pool: &Pool, wished: &PoolSettings) -> StandInSettings {
        let own = self.stand_in_of(&pool.codes());
        let takes = own.and_then(|served| served.config).map(|config| config.max_batch_size);
        let most = match takes {
            _ if !pool.batched => 1,
            Some(most) if most > 0 => u8::try_from(most).unwrap_or(u8::MAX),
            _ => u8::MAX,
        };
        let most = NonZeroU8::new(most).unwrap_or(NonZeroU8::MIN);
        StandInSettings { max_rows: wished.stand_in.max_rows.min(most), ..wished.stand_in.clone() }
    }

    /// A model is new: those that it stands in for can now be held to it.
    fn stand_in_came(&self, newcomer: &Pool) {
        for pool in self.catalog.all() {
            let named = self.settings.lock().of(&pool.model.name).stand_in.model.clone();
            let stands_in = |codes: &Codes| {
                codes.stand_in.as_ref().is_some_and(|known| known.model.name == newcomer.model.name)
            };
            if named.is_some_and(|name| name == newcomer.model.name) || stands_in(&pool.codes()) {
                self.apply_settings(&pool);
            }
        }
    }

    /// Reads the bundles again, and uses what they offer now.
    fn reload(self: &Arc<Self>) {
        if self.library.read() {
            tracing::info!("bundles changed");
            self.catalog.all().iter().for_each(|pool| self.apply_settings(pool));
            self.roster.settle(&self.driver, &self.catalog);
            self.examine();
        }
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
            if let Some(mut status) = self.driver.status(pool.id) {
                // The dispatcher keeps the books of stand-ins that a pool could have, or had.
                if pool.codes().stand_in.is_none() {
                    (status.stand_in_cost, status.agreement, status.withheld) = (None, None, false);
                }
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

/// Refuses policies that could never be followed, whatever models come.
fn check(settings: &PoolSettings, library: &Library) -> Result<(), Error> {
    let reason = match settings.policy {
        PolicyKind::Parm | PolicyKind::ParmPlus if library.is_empty() && settings.coding.code.is_none() => {
            "policies parm and parm+ need codes: name a folder with bundles (NAME/parm.toml) with frontend.bundles or \
             --bundles, or, for linear models, set coding.code = \"mds\""
        }
        PolicyKind::ApproximateBackup if settings.backup_model.is_none() => {
            "policy approximate-backup needs a cheaper model: name one with backup_model"
        }
        PolicyKind::StandIn if settings.stand_in.model.is_none() && !library.has_stand_ins() => {
            "policy stand-in needs a cheaper model: name one with stand_in.model or --stand-in, or a folder with bundles \
             that have one with frontend.bundles or --bundles"
        }
        _ => return Ok(()),
    };
    Err(Error::BadSettings { reason: reason.into() })
}

/// Looks for changes of the bundles as long as the frontend lives.
async fn follow(core: Weak<Core>) {
    let (mut known, mut settling) = (None, None);
    while let Some(strong) = core.upgrade() {
        let every = strong.config.bundles_interval;
        let timers = strong.driver.timers;
        let look = timers.offload(move || {
            let stamp = strong.library.stamp();
            let first = known.is_none();
            if first || (known.as_ref() != Some(&stamp) && settling.as_ref() == Some(&stamp)) {
                if !first {
                    strong.reload();
                }
                // A new manifest names new files.
                known = Some(strong.library.stamp());
            }
            (known, Some(stamp))
        });
        match look.await {
            Ok(looked) => (known, settling) = looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // the runtime ends
            },
        }
        tokio::time::sleep(every).await;
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
