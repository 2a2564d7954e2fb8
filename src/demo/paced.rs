//! Delays the answers of an embedded instance to emulate service times.
//!
//! Its predictions are the model's own. Only the service time is emulated: three policies with twelve servers each need more
//! processors than a laptop has. So each answer of a small model is delayed until a larger model would have answered, and
//! longer during a fault of the script. Like any instance it runs one job after another, and finishes a job even if the
//! client no longer waits. Models other than the deployed one take their measured share of that time.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_backend::Embedded;
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};
use parm_workload::Time;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Schedule};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Requests that may wait for an instance. The dispatcher sends one at a time, and one more after a timeout of the first.
const WAITING: usize = 64;

/// The service times of an instance.
#[derive(Clone)]
pub struct Pace {
    pub service: Service,
    pub schedule: Schedule,
    pub seed: u64,
    pub instance: u32,
    /// The beginning of the traffic. Faults and delays start with it.
    pub began: Arc<OnceLock<Instant>>,
    /// The cost of each model's run, as a share of a query's run.
    pub costs: Arc<BTreeMap<String, f64>>,
    /// The time since the beginning after which work counts.
    pub warm_up: Duration,
    /// Work since then of all instances of a policy, in runs of one query.
    pub work: Arc<Mutex<f64>>,
}

/// An instance with emulated service times.
pub struct Paced {
    inner: Embedded,
    jobs: SyncSender<Job>,
}

struct Job {
    request: InferRequest,
    context: CallContext,
    answer: oneshot::Sender<Result<InferResponse, Error>>,
}

impl Paced {
    /// Starts the instance's thread.
    pub fn start(inner: Embedded, pace: Pace, runtime: Handle) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(WAITING);
        let own = inner.clone();
        thread::Builder::new()
            .name(inner.peer().to_owned())
            .spawn(move || work(&queue, &own, pace, &runtime))?;
        Ok(Self { inner, jobs })
    }
}

fn work(queue: &Receiver<Job>, inner: &Embedded, mut pace: Pace, runtime: &Handle) {
    while let Ok(Job { request, context, answer }) = queue.recv() {
        if answer.is_closed() {
            continue;
        }
        let began = Instant::now();
        let share = pace.costs.get(&request.model.name).copied().unwrap_or(1.0);
        let predicted = runtime.block_on(inner.infer(request, context));
        thread::sleep(pace.length(began, share).saturating_sub(began.elapsed()));
        // The client may have given up meanwhile. The run counts in any case.
        let _ = answer.send(predicted);
    }
}

impl Pace {
    /// Returns the length of a run that begins now and costs this share of a query's run.
    fn length(&mut self, began: Instant, share: f64) -> Duration {
        let Some(traffic) = self.began.get() else { return Duration::ZERO };
        let since = began.saturating_duration_since(*traffic);
        if since >= self.warm_up {
            *self.work.lock() += share;
        }
        let start = Time::ZERO + since;
        let run = service::Run { seed: self.seed, instance: self.instance, start };
        let nanos = self.service.nanos(1, run) * share;
        match self.schedule.run(self.instance, start, nanos) {
            Ending::Answered { at, .. } => at.since(start),
            // The script has no crashes, and all hangs end.
            Ending::Lost { .. } | Ending::Never => Duration::ZERO,
        }
    }
}

impl Client for Paced {
    fn peer(&self) -> &str {
        self.inner.peer()
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.jobs.try_send(Job { request, context, answer });
        Box::pin(async move {
            let full = || Error::Unavailable { message: format!("the queue of {} is full", self.peer()) };
            sent.map_err(|_| full())?;
            answered.await.unwrap_or_else(|_| Err(full()))
        })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        self.inner.is_ready()
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        self.inner.server_metadata()
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        self.inner.model_metadata(model)
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        self.inner.model_config(model)
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        self.inner.repository_index()
    }
}
