//! Core of a frontend, shared by its service, its instances' supervisors and its admin API.

mod activity;
mod bundles;
mod membership;
mod outages;
mod reload;
mod roles;
mod settings;
mod standing;
#[cfg(test)]
mod tests;
mod trial;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use parking_lot::Mutex;
use parm_shares::{Account, Table};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use self::activity::Activity;
pub(crate) use self::membership::Departure;
pub use self::reload::{Dispatch, Reloaded};
pub(crate) use self::settings::PoolSettingsByModel;
use super::catalog::Catalog;
use super::clock::Timers;
use super::coding::{Library, LoadNets};
use super::driver::Driver;
use super::reading::Payer;
use super::roster::Roster;
use crate::capture::Sampler;
use crate::config::Config;
use crate::console::Stream;
use crate::error::Error;
use crate::metrics::{self, Metrics};
use crate::upstreams::{self, Routes};

/// The parts of a frontend; its operations are in the files of this folder.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) driver: Arc<Driver>,
    pub(crate) catalog: Catalog,
    pub(crate) metrics: Metrics,
    /// Notified when an instance has left a model: a rejected one may be admitted now.
    pub(crate) vacated: Notify,
    /// Counts replaced pools that had other instances, which must join the new ones.
    pub(crate) regrouped: watch::Sender<u64>,
    pub(crate) activity: Activity,
    pub(crate) stream: Stream,
    pub(crate) sampler: Option<Sampler>,
    settings: Mutex<PoolSettingsByModel>,
    /// Held from reading the requested settings until they are in effect.
    applying: Mutex<()>,
    /// Called between the two.
    #[cfg(test)]
    before_force: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    /// Number of changes of settings.
    revision: AtomicU64,
    instances: AtomicU32,
    library: Library,
    pub(crate) roster: Roster,
    /// Routes of upstream servers.
    pub(crate) routes: Routes,
    /// Whether there are upstream servers, and whether there are others.
    pub(crate) reach: Reach,
    /// Whether any instance has listed its models: until then it is unknown which exist.
    pub(crate) listed: AtomicBool,
}

/// Kinds of servers that are known.
#[derive(Default)]
pub(crate) struct Reach {
    pub(crate) upstreams: AtomicBool,
    pub(crate) models: AtomicBool,
}

/// The dispatch settings of a configuration; an error if they or the shares could never apply.
fn wished(config: &Config, library: &Library) -> Result<PoolSettingsByModel, Error> {
    let wished = PoolSettingsByModel { default: config.dispatch.clone(), models: config.models.clone() };
    wished.check(library)?;
    config.shares.check()?;
    Ok(wished)
}

impl Core {
    /// Rejects the settings that [`start`](Self::start) rejects. Starts nothing.
    pub(crate) fn check(config: &Config) -> Result<(), Error> {
        wished(config, &Library::open(config.bundles.clone(), None))?;
        Routes::new(&config.upstreams).map(drop).map_err(upstreams::wrong)
    }

    /// Must be called inside a runtime.
    pub(crate) fn start(
        config: Config,
        timers: Timers,
        nets: Option<Arc<dyn LoadNets>>,
    ) -> Result<Arc<Self>, Error> {
        let library = Library::open(config.bundles.clone(), nets);
        if let Some(path) = config.bundles.as_deref().filter(|path| !path.exists()) {
            let path = path.display();
            tracing::warn!(%path, "frontend.bundles does not exist: there are no bundles: correct the path");
        }
        let wished = wished(&config, &library)?;
        let routes = Routes::new(&config.upstreams).map_err(upstreams::wrong)?;
        let shares = Arc::new(Table::new(&config.shares));
        let metrics = Metrics::new();
        let sampler = Sampler::start(&config.capture, || metrics.captured())?;
        let crash_folder = config.recording.crash_folder.clone();
        let core = Arc::new(Self {
            driver: Driver::start(config.instances.clone(), shares, timers, crash_folder)
                .map_err(|error| Error::Timer { reason: error.to_string() })?,
            catalog: Catalog::default(),
            metrics,
            sampler,
            vacated: Notify::new(),
            regrouped: watch::Sender::new(0),
            activity: Activity::default(),
            stream: Stream::default(),
            settings: Mutex::new(wished),
            applying: Mutex::new(()),
            #[cfg(test)]
            before_force: Mutex::new(None),
            revision: AtomicU64::new(1),
            instances: AtomicU32::new(0),
            library,
            roster: Roster::default(),
            routes,
            reach: Reach::default(),
            listed: AtomicBool::new(false),
            config,
        });
        let watch = outages::watch(Arc::downgrade(&core));
        core.driver.lifelines.spawn(&Handle::current(), "the watch for outages", watch);
        if core.library.exists() {
            let follow = bundles::follow(Arc::downgrade(&core));
            core.driver.lifelines.spawn(&Handle::current(), "bundle polling", follow);
        }
        Ok(core)
    }

    /// Usage of instance time by configured shares, and by the own shares of models that used some. Each comes with the
    /// name of the share or model.
    pub(crate) fn shared(&self) -> Vec<([String; 2], Account)> {
        self.shares_named().into_iter().map(|(_, named, account)| (named, account)).collect()
    }

    fn shares_named(&self) -> Vec<(Payer, [String; 2], Account)> {
        let pools = self.catalog.all();
        let named = |(payer, account): (Payer, Account)| match payer {
            Payer::Share(share) => {
                let name = self.driver.shares.name(share).to_string();
                Some((payer, [name, String::new()], account))
            }
            Payer::Model(_) if account.used == 0.0 && account.waiting == 0 => None,
            Payer::Model(id) => {
                let pool = pools.iter().find(|pool| pool.id == id)?;
                Some((payer, [String::new(), pool.model.name.clone()], account))
            }
        };
        self.driver.shared().into_iter().filter_map(named).collect()
    }

    /// Renders the metrics page.
    pub(crate) fn page(&self, instances: metrics::InstanceCounts, paces: &[metrics::Pace]) -> String {
        for pool in self.catalog.all() {
            if let Some(mut reading) = self.driver.reading(pool.id) {
                // The dispatcher also has accounts of stand-ins that the pool could have, or had, or that no instance serves.
                if self.stand_in_of(&pool.codes()).is_none() {
                    (reading.stand_in_cost, reading.agreement) = (None, None);
                    (reading.withheld, reading.in_outage) = (false, false);
                }
                pool.metrics.refresh(&reading, pool.sums.objective.tail());
            }
        }
        self.metrics.share_out(&self.shares_named());
        self.metrics.count_instances(instances);
        self.metrics.pace_instances(paces);
        self.metrics.text()
    }
}
