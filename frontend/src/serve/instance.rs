//! Instance as the driver knows it: its client, its models and its measured times.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use parm_grants::{Order, Told};
use parm_protocol::client::Client;
use parm_protocol::fleet::{News, Watcher};
use parm_protocol::{Code, Error, ModelIndex, rest};
use serde::Serialize;
use tokio::sync::Notify;

use super::driver::Driver;
use super::pool::Pool;
use super::state::State;
use crate::metrics;

/// Number of service times for the quantiles.
const WINDOW: usize = 512;

/// The name of an instance in this frontend, which is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InstanceId(pub(crate) u32);

/// An instance: an embedded thread or a remote server.
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Its number in the fleet.
    pub(crate) number: u32,
    /// Its address; `embedded:N` for a thread of this process.
    pub(crate) name: String,
    pub(crate) client: Arc<dyn Client>,
    /// Jobs that it holds.
    inflight: AtomicU32,
    /// Notified when the last job is done.
    idle: Notify,
    /// Notified after a transport error: a health check should not wait.
    pub(crate) suspect: Notify,
    /// Notified when it did not know a model that it should serve: its models have changed.
    pub(crate) outdated: Notify,
    /// Notified when it states other slots.
    pub(crate) stated: Notify,
    pools: RwLock<Vec<Arc<Pool>>>,
    /// Models that it knows but does not serve.
    absent: RwLock<Vec<ModelIndex>>,
    /// Models that it rejected a job for, or unloaded by order, since the last description began.
    disowned: Mutex<BTreeSet<String>>,
    /// Its last service times.
    recent: Mutex<VecDeque<Duration>>,
    /// Finished jobs, and how many of them failed.
    ended: [AtomicU64; 2],
    metrics: metrics::InstanceMetrics,
    /// The jobs at a time that it states, 0 if it states none; and whether other frontends use it.
    stated_slots: AtomicU16,
    shared: AtomicBool,
    /// The number of its latest connection that said something.
    pub(super) connection: AtomicU64,
    /// The number of the latest ask that was told to it.
    pub(super) latest_ask: Mutex<u64>,
    /// Whether it has joined before.
    joined: AtomicBool,
    /// The latest error of a job.
    last_failure: Mutex<Option<String>>,
    /// Whether it states the files of its models, as our workers do, which know our parameters.
    pub(super) states_files: AtomicBool,
    /// Whether it is another frontend, which has to be asked for predictions: its answers name their outcome.
    pub(super) approximates: AtomicBool,
}

/// Quantiles of the last service times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_us: u64,
    p90_us: u64,
    pub(crate) p99_us: u64,
}

impl Instance {
    pub(crate) fn new(
        (id, number): (InstanceId, u32),
        name: String,
        client: Arc<dyn Client>,
        metrics: metrics::InstanceMetrics,
    ) -> Self {
        Self {
            id,
            number,
            name,
            client,
            inflight: AtomicU32::new(0),
            idle: Notify::new(),
            suspect: Notify::new(),
            outdated: Notify::new(),
            stated: Notify::new(),
            pools: RwLock::default(),
            absent: RwLock::default(),
            disowned: Mutex::default(),
            recent: Mutex::default(),
            ended: Default::default(),
            metrics,
            stated_slots: AtomicU16::new(0),
            shared: AtomicBool::new(false),
            connection: AtomicU64::new(0),
            latest_ask: Mutex::default(),
            joined: AtomicBool::new(false),
            last_failure: Mutex::default(),
            states_files: AtomicBool::new(false),
            approximates: AtomicBool::new(false),
        }
    }

    /// The models that it serves.
    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.read().clone()
    }

    pub(crate) fn set_pools(&self, pools: Vec<Arc<Pool>>) {
        *self.pools.write() = pools;
    }

    /// Models that it knows but does not serve, with its reasons.
    pub(crate) fn absent(&self) -> Vec<ModelIndex> {
        self.absent.read().clone()
    }

    pub(crate) fn set_absent(&self, models: Vec<ModelIndex>) {
        *self.absent.write() = models;
    }

    /// Whether other frontends may use it too: threads of this process are private, even if their names are equal.
    pub(super) fn may_be_shared(&self) -> bool {
        !self.name.starts_with("embedded:")
    }

    /// Jobs that it holds.
    pub(crate) fn inflight(&self) -> u32 {
        self.inflight.load(Ordering::Relaxed)
    }

    pub(crate) fn job_started(&self) {
        self.inflight.fetch_add(1, Ordering::Relaxed);
        self.metrics.inflight.inc();
    }

    pub(crate) fn job_ended(&self) {
        self.metrics.inflight.dec();
        if self.inflight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.idle.notify_waiters();
        }
    }

    /// Records the service time of a job.
    pub(crate) fn served(&self, took: Duration) {
        self.metrics.service_time.observe(took.as_secs_f64());
        let mut recent = self.recent.lock();
        if recent.len() == WINDOW {
            recent.pop_front();
        }
        recent.push_back(took);
    }

    /// Counts a finished job.
    pub(crate) fn ends(&self, ok: bool) {
        self.ended[0].fetch_add(1, Ordering::Relaxed);
        self.ended[1].fetch_add(u64::from(!ok), Ordering::Relaxed);
    }

    /// Finished jobs, and how many of them failed.
    pub(crate) fn ended(&self) -> [u64; 2] {
        self.ended.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Records other evidence that it does not serve a model.
    pub(crate) fn disowns(&self, model: &str) {
        self.disowned.lock().insert(model.to_owned());
    }

    /// Takes the models with such evidence.
    pub(crate) fn take_disowned(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.disowned.lock())
    }

    /// Whether it joins for the first time.
    pub(super) fn first_join(&self) -> bool {
        !self.joined.swap(true, Ordering::Relaxed)
    }

    /// The jobs at a time that it states.
    pub(super) fn stated_slots(&self) -> Option<u16> {
        Some(self.stated_slots.load(Ordering::Relaxed)).filter(|slots| *slots > 0)
    }

    pub(super) fn set_stated_slots(&self, slots: NonZeroU16) {
        if self.stated_slots.swap(slots.get(), Ordering::Relaxed) != slots.get() {
            self.stated.notify_one();
        }
    }

    /// Whether other frontends use it.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Records a failed job.
    pub(crate) fn failed(&self, model: &str, error: &Error) {
        self.metrics.failures.inc();
        let mut text = error.to_string();
        rest::shorten(&mut text);
        *self.last_failure.lock() = Some(text);
        if matches!(error, Error::Transport { .. } | Error::Unsent { .. }) {
            self.suspect.notify_one();
        } else if error.code() == Code::NotFound {
            self.disowns(model);
            self.outdated.notify_one();
        }
    }

    /// The error of its last failed job.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
    }

    /// Waits until it holds no jobs.
    pub(crate) async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.inflight() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Quantiles of the last service times; `None` before the first.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let mut times: Vec<_> = self.recent.lock().iter().copied().collect();
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_micros() as u64;
        (!times.is_empty()).then(|| Quantiles { p50_us: at(0.5), p90_us: at(0.9), p99_us: at(0.99) })
    }
}

/// Hears one instance: asks and grants between this frontend and workers of ours (see the crate `grants`).
///
/// The dispatcher decides both. Here messages of an earlier connection are ignored, because its grants are void, and an ask that
/// another thread has overtaken is not sent, because each states what holds from now on.
pub(super) struct Listener {
    driver: Weak<Driver>,
    instance: Weak<Instance>,
}

impl Listener {
    pub(super) fn of(driver: &Arc<Driver>, instance: &Arc<Instance>) -> Self {
        Self { driver: Arc::downgrade(driver), instance: Arc::downgrade(instance) }
    }
}

impl Watcher for Listener {
    fn heard(&self, connection: u64, news: News) {
        let Some((driver, instance)) = self.driver.upgrade().zip(self.instance.upgrade()) else { return };
        let told = match news {
            News::Slots(slots) => return instance.set_stated_slots(slots),
            News::Told(told) => told,
            News::Ended => Told::Shared(false),
        };
        driver.with(|state| state.heard(&driver, &instance, (connection, told)));
    }
}

impl State {
    /// Tells the dispatcher what an instance says on one of its connections.
    pub(super) fn heard(&mut self, driver: &Driver, instance: &Instance, (connection, told): (u64, Told)) {
        // Only changed here, under the lock.
        if instance.connection.fetch_max(connection, Ordering::Relaxed) > connection {
            return;
        }
        if let Told::Shared(shared) = told {
            instance.shared.store(shared, Ordering::Relaxed);
        }
        let Some(key) = self.keys.get(&instance.id).copied() else { return };
        self.react(driver, |state, now| match told {
            Told::Granted => state.dispatcher.granted(now, key),
            Told::Recalled => state.dispatcher.recalled(now, key),
            Told::Shared(shared) => state.dispatcher.shared(now, key, shared),
        });
    }
}

impl Instance {
    /// Tells it the order of this number, unless it is an ask that a later one has overtaken.
    pub(super) fn order(&self, number: u64, order: Order) {
        let mut latest_ask = self.latest_ask.lock();
        if matches!(order, Order::Ask(_)) {
            if number < *latest_ask {
                return;
            }
            *latest_ask = number;
        }
        self.client.tell(order);
    }

    /// An attempt that was to run there is not sent: its grant goes back.
    pub(super) fn not_sent(&self) {
        if self.is_shared() {
            self.client.tell(Order::Return);
        }
    }
}
