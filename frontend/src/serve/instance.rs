//! Instance as the driver knows it: its client, its models and its measured times.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use parm_dispatch::InstanceId;
use parm_protocol::client::Client;
use parm_protocol::{Code, Error, ModelIndex, rest};
use tokio::sync::Notify;

use super::pool::Pool;
use super::tokens::Tokens;
use crate::metrics;

/// Number of service times for the quantiles.
const WINDOW: usize = 512;

/// Number of jobs for its relative speed.
const PACES: usize = 64;

/// Minimum number of jobs for its relative speed.
const FEWEST_PACES: usize = 8;

/// The same after an ejection, when they are known to be slow.
const FRESH_PACES: usize = 3;

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
    pools: RwLock<Vec<Arc<Pool>>>,
    /// Models that it knows but does not serve.
    absent: RwLock<Vec<ModelIndex>>,
    /// Models that it rejected a job for, or unloaded by order, since the last description began.
    disowned: Mutex<BTreeSet<String>>,
    recent: Mutex<Recent>,
    /// The error of its last failed job.
    last_failure: Mutex<Option<String>>,
    /// Its times of deployed models relative to the usual times of their pools.
    paces: Mutex<VecDeque<f32>>,
    /// Whether few jobs suffice for it, since an ejection for slowness.
    few_paces: AtomicBool,
    /// Finished jobs, and how many of them failed.
    ended: [AtomicU64; 2],
    metrics: metrics::InstanceMetrics,
    /// Forwards its token messages, from its first models on.
    pub(super) tokens: OnceLock<Arc<Tokens>>,
    /// Whether it states the files of its models, as our workers do.
    states_files: AtomicBool,
    /// Whether it is another frontend, which may return approximate answers.
    approximates: AtomicBool,
}

/// Quantiles of the last service times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) median: Duration,
    pub(crate) p90: Duration,
    pub(crate) p99: Duration,
}

struct Recent {
    times: Vec<Duration>,
    next: usize,
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
            pools: RwLock::default(),
            absent: RwLock::default(),
            disowned: Mutex::default(),
            recent: Mutex::new(Recent { times: Vec::new(), next: 0 }),
            last_failure: Mutex::default(),
            paces: Mutex::default(),
            few_paces: AtomicBool::new(false),
            ended: Default::default(),
            metrics,
            tokens: OnceLock::new(),
            states_files: AtomicBool::new(false),
            approximates: AtomicBool::new(false),
        }
    }

    /// Whether it has to be asked for predictions.
    pub(super) fn approximates(&self) -> bool {
        self.approximates.load(Ordering::Relaxed)
    }

    /// Notes that it is another frontend: its answers name their outcome.
    pub(super) fn set_approximates(&self) {
        self.approximates.store(true, Ordering::Relaxed);
    }

    /// Whether it is a worker of ours, which knows our parameters.
    pub(super) fn states_files(&self) -> bool {
        self.states_files.load(Ordering::Relaxed)
    }

    /// Notes whether it states the files of its models.
    pub(super) fn set_states_files(&self, states: bool) {
        self.states_files.store(states, Ordering::Relaxed);
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
        let next = recent.next;
        match recent.times.get_mut(next) {
            Some(time) => *time = took,
            None => recent.times.push(took),
        }
        recent.next = (next + 1) % WINDOW;
    }

    /// Records the relative time of a job of the deployed model.
    pub(crate) fn paced(&self, pace: f64) {
        let mut paces = self.paces.lock();
        if paces.len() >= PACES {
            paces.pop_front();
        }
        paces.push_back(pace as f32);
    }

    /// Forgets jobs from before it was slow: with few probes they would hide for a minute how slow it is.
    pub(crate) fn ejected_as_slow(&self) {
        let mut paces = self.paces.lock();
        let old = paces.len().saturating_sub(FRESH_PACES);
        paces.drain(..old);
        self.few_paces.store(true, Ordering::Relaxed);
    }

    /// Median relative time of its last jobs; `None` before there are enough.
    pub(crate) fn slowness(&self) -> Option<f64> {
        let fewest = if self.few_paces.load(Ordering::Relaxed) { FRESH_PACES } else { FEWEST_PACES };
        let mut paces: Vec<f32> = self.paces.lock().iter().copied().collect();
        paces.sort_unstable_by(f32::total_cmp);
        (paces.len() >= fewest).then(|| f64::from(paces[paces.len() / 2]))
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
        let mut times = self.recent.lock().times.clone();
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        (!times.is_empty()).then(|| Quantiles { median: at(0.5), p90: at(0.9), p99: at(0.99) })
    }
}

#[cfg(test)]
mod tests {
    use parm_transport::client;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn slowness_is_of_the_jobs_since_ejection() {
        let client = client::connect(&"http://gone:1".parse().unwrap(), &client::Config::default()).unwrap();
        let name = (InstanceId(1), 1);
        let instance = Instance::new(name, "i".into(), client, Metrics::new().instance("i"));
        (0..60).for_each(|_| instance.paced(1.0));
        (0..2).for_each(|_| instance.paced(7.0));
        assert_eq!(instance.slowness(), Some(1.0));
        instance.ejected_as_slow();
        assert_eq!(instance.slowness(), Some(7.0), "of the last three jobs two were slow");
        (0..2).for_each(|_| instance.paced(1.0));
        assert_eq!(instance.slowness(), Some(1.0), "its probes are as fast as usual again");
    }
}
