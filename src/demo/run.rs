//! Sends the same queries to every policy at the same times, in open loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_loadgen::pacer::{self, Continue};
use parm_workload::arrivals::{Arrivals, Times};
use tokio::runtime::Handle;

use super::cluster::{PolicyCluster, Query};
use super::traffic::Traffic;

/// Timeout of a query; a later answer counts as missed.
pub const DEADLINE: Duration = Duration::from_secs(1);

/// Delay between the start and the first query.
const LEAD: Duration = Duration::from_millis(50);

/// The clusters, and the queries to send.
pub struct DemoRun {
    pub clusters: Vec<Arc<PolicyCluster>>,
    pub traffic: Arc<Traffic>,
    pub arrivals: Times,
    pub length: Duration,
    /// Set to the beginning of the traffic.
    pub began: Arc<OnceLock<Instant>>,
}

/// Traffic that is being sent.
pub struct Running {
    pub began: Instant,
    stop: Arc<AtomicBool>,
    lags: Arc<Mutex<Vec<Duration>>>,
    pacer: JoinHandle<()>,
}

impl DemoRun {
    /// Returns the times of queries, from a Poisson process.
    pub fn arrivals(rate: f64, seed: u64) -> anyhow::Result<Times> {
        Ok(Arrivals::Poisson { rate }.schedule(seed)?)
    }

    /// Starts to send, on a thread of its own.
    pub fn start(self, runtime: Handle) -> anyhow::Result<Running> {
        let began = *self.began.get_or_init(|| Instant::now() + LEAD);
        let (stop, lags) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, noted) = (stop.clone(), lags.clone());
        let DemoRun { clusters, traffic, arrivals, length, .. } = self;
        let schedule = arrivals.take_while(move |at| *at < length);
        let send = move |index: usize, intended: Instant, lag: Duration| {
            if stopped.load(Ordering::Relaxed) {
                return Continue::Stop;
            }
            noted.lock().push(lag);
            for cluster in &clusters {
                let query = Query {
                    request: traffic.request(index),
                    index,
                    intended,
                    since: intended - began,
                    deadline: intended + DEADLINE,
                    traffic: traffic.clone(),
                };
                let cluster = cluster.clone();
                runtime.spawn(async move { cluster.ask(query).await });
            }
            Continue::Next
        };
        let pacer =
            thread::Builder::new().name("pacer".into()).spawn(move || pacer::run(began, schedule, send))?;
        Ok(Running { began, stop, lags, pacer })
    }
}

impl Running {
    /// Whether the last query has been sent.
    pub fn is_sent(&self) -> bool {
        self.pacer.is_finished()
    }

    /// Stops sending.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns a quantile of the delays of sending. Long delays mean that the machine is too busy.
    pub fn lag(&self, share: f64) -> Duration {
        let mut lags = self.lags.lock().clone();
        lags.sort_unstable();
        lags.get((share * lags.len() as f64) as usize).copied().unwrap_or_default()
    }
}
