//! Core of a frontend, shared by its service, its instances' supervisors and its admin API.

mod membership;
mod outages;
mod settings;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use parm_shares::Table;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

pub(crate) use self::membership::Departure;
pub(crate) use self::settings::PoolSettingsByModel;
pub use self::settings::{Dispatch, Reloaded};
use super::catalog::Catalog;
use super::clock::Timers;
use super::coding::{Library, LoadNets};
use super::driver::Driver;
use super::pool::Pool;
use super::roster::Roster;
use crate::capture::Sampler;
use crate::config::Config;
use crate::console::Stream;
use crate::discovery::MemberReading;
use crate::error::Error;
use crate::metrics::Metrics;
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
    /// Requests in progress; closed once the frontend drains.
    pub(crate) requests: TaskTracker,
    pub(crate) stream: Stream,
    pub(crate) sampler: Option<Sampler>,
    control: Mutex<Control>,
    /// Number of changes of settings.
    revision: AtomicU64,
    instances: AtomicU32,
    library: Library,
    /// Routes of upstream servers.
    pub(crate) routes: Routes,
    /// Whether there are upstream servers, and whether there are others.
    pub(crate) reach: Reach,
    /// Whether any instance has listed its models: until then it is unknown which exist.
    pub(crate) listed: AtomicBool,
}

/// What decides which settings are in effect, and which models instances offer. Whoever changes settings, instances, models or
/// bundles holds it from the first look until the dispatcher knows all that follows, so that no change meets another one half
/// done. Requests do not need it.
struct Control {
    /// Requested settings.
    settings: PoolSettingsByModel,
    roster: Roster,
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
        let core = Arc::new(Self {
            driver: Driver::start(config.instances.clone(), shares, timers)
                .map_err(|error| Error::Timer { reason: error.to_string() })?,
            catalog: Catalog::default(),
            metrics,
            sampler,
            vacated: Notify::new(),
            regrouped: watch::Sender::new(0),
            requests: TaskTracker::new(),
            stream: Stream::default(),
            control: Mutex::new(Control { settings: wished, roster: Roster::default() }),
            revision: AtomicU64::new(1),
            instances: AtomicU32::new(0),
            library,
            routes,
            reach: Reach::default(),
            listed: AtomicBool::new(false),
            config,
        });
        let watch = outages::watch(Arc::downgrade(&core));
        core.driver.lifelines.spawn(&Handle::current(), "the watch for outages", watch);
        if core.library.exists() {
            let follow = settings::follow_bundles(Arc::downgrade(&core));
            core.driver.lifelines.spawn(&Handle::current(), "bundle polling", follow);
        }
        Ok(core)
    }

    /// Whether no instance has joined with all its models.
    pub(crate) fn has_no_instance(&self) -> bool {
        self.control.lock().roster.is_empty()
    }

    /// Counts a failed request of a model.
    pub(crate) fn failed(&self, pool: &Pool, error: &parm_protocol::Error, took: Duration) {
        self.metrics.models.failed(&pool.metrics, error);
        pool.failed(error, took);
    }

    /// Renders the metrics page.
    pub(crate) fn page(&self, members: &[MemberReading]) -> String {
        for pool in self.catalog.all() {
            if let Some(mut reading) = self.driver.reading(pool.id) {
                // The dispatcher also has accounts of stand-ins that the pool could have, or had, or that no instance serves.
                let stands_in = self.stand_in_of(&pool.codes()).is_some();
                if !stands_in {
                    (reading.own.stand_in_cost, reading.agreement) = (None, None);
                    (reading.withheld, reading.own.in_outage) = (false, false);
                }
                self.metrics.models.refresh(&pool.metrics, &reading, stands_in, pool.sums.objective.tail());
            }
        }
        self.metrics.shares.refresh(&self.driver.shared());
        self.metrics.instances.refresh(members);
        self.metrics.text()
    }
}
