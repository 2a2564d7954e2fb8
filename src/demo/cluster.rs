//! The servers of one policy, behind a frontend or a usual load balancer.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use parm_backend::{Embedded, Metrics};
use parm_frontend::discovery::Wire;
use parm_frontend::{Frontend, Timers};
use parm_loadgen::grader::Grader;
use parm_loadgen::inputs::{Column, Inputs, Recorded};
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelConfig, ModelIndex, ModelMetadata,
    ModelRef, ServerMetadata, Transport,
};
use parm_transport::client;
use parm_workload::service::{self, Service};
use parm_workload::{Ending, Schedule, Time};
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Policy;
use crate::example::Example;

/// Timeout for joining.
const PATIENCE: Duration = Duration::from_secs(60);

/// A policy with its servers. The load generator sees one server.
pub struct Cluster {
    pub policy: Policy,
    /// Work of its servers since the warm-up, in runs of one query.
    pub work: Arc<Mutex<f64>>,
    serving: Serving,
    /// One of its servers without the pace, for metadata.
    server: Embedded,
}

enum Serving {
    Frontend(Frontend),
    Balancer(LeastRequests),
}

/// A usual load balancer: each request goes to the server with the fewest open requests, by turns if several have as few.
struct LeastRequests {
    servers: Vec<Paced>,
    /// Open requests of each server, and the server whose turn is next.
    open: Mutex<(Vec<usize>, usize)>,
}

impl Cluster {
    /// Starts the servers and waits until all have joined.
    pub async fn start(policy: Policy, models: &Models, pace: &Pace) -> anyhow::Result<Self> {
        let work = Arc::new(Mutex::new(0.0));
        let costs = Arc::new(models.costs(policy.model()));
        let mut servers = Vec::new();
        for (number, server) in (0..).zip(models.servers.iter().take(policy.servers)) {
            let pace = Pace { instance: number, costs: costs.clone(), work: work.clone(), ..pace.clone() };
            servers.push(Paced::start(server.clone(), pace, Handle::current())?);
        }
        let serving = match policy.settings() {
            None => {
                Serving::Balancer(LeastRequests { open: Mutex::new((vec![0; servers.len()], 0)), servers })
            }
            Some(dispatch) => {
                let bundles = (!policy.is_linear()).then(|| models.folder.clone());
                let config = parm_frontend::Config { bundles, dispatch, ..parm_frontend::Config::default() };
                let wire = Arc::new(Wire::new(client::Config::default()));
                let frontend = Frontend::start(config, wire, Timers::Precise)
                    .with_context(|| format!("cannot start policy {}", policy.name))?;
                for server in servers {
                    frontend.embed(Arc::new(server), None)?;
                    // One after another: the order of joining decides which servers a policy reserves for parities.
                    until_settled(&frontend).await?;
                }
                Serving::Frontend(frontend)
            }
        };
        Ok(Self { policy, work, serving, server: models.servers[0].clone() })
    }
}

impl Client for Cluster {
    fn peer(&self) -> &str {
        self.policy.name
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(async move {
            match &self.serving {
                Serving::Balancer(balancer) => balancer.infer(request, context).await,
                Serving::Frontend(frontend) => {
                    let arrived = Context::new(tokio::time::Instant::now(), Transport::Http);
                    frontend.infer(request, Context { deadline: context.deadline, ..arrived }).await
                }
            }
        })
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>> {
        self.server.is_ready()
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>> {
        self.server.server_metadata()
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>> {
        self.server.model_metadata(model)
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>> {
        self.server.repository_index()
    }
}

impl LeastRequests {
    async fn infer(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        let chosen = self.choose();
        let answer = self.servers[chosen].infer(request, context.clone());
        let answer = match context.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, answer).await,
            None => Ok(answer.await),
        };
        self.open.lock().0[chosen] -= 1;
        answer.unwrap_or_else(|_| Err(Error::Unavailable { message: "no answer in time".into() }))
    }

    fn choose(&self) -> usize {
        let mut state = self.open.lock();
        let (open, next) = &mut *state;
        let by_turns = (0..open.len()).map(|step| (*next + step) % open.len());
        let chosen = by_turns.min_by_key(|server| open[*server]).unwrap_or_default();
        open[chosen] += 1;
        *next = (chosen + 1) % open.len();
        chosen
    }
}

async fn until_settled(frontend: &Frontend) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !frontend.is_settled() {
        ensure!(Instant::now() < deadline, "a server did not join within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

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

/// An embedded instance whose answers are delayed.
///
/// Its predictions are the model's own. Only the service time is emulated: three policies with twelve servers each need more
/// processors than a laptop has. So each answer of a small model is delayed until a larger model would have answered, and
/// longer during a fault of the script. Like any instance it runs one job after another, and finishes a job even if the
/// client no longer waits. Models other than the deployed one take their measured share of that time.
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

/// Runs that measure a model.
const RUNS: u32 = 15;

/// The servers, which the policies share: they run models for a small part of the time that the demo emulates.
pub struct Models {
    pub folder: PathBuf,
    pub servers: Vec<Embedded>,
    images: PathBuf,
    /// The time of one row on this machine.
    run_times: BTreeMap<String, Duration>,
}

impl Models {
    /// Loads and measures the models of some policies. Blocks while they load.
    pub async fn load(example: &Example, policies: &[Policy]) -> anyhow::Result<Self> {
        let mut names: Vec<String> =
            policies.iter().flat_map(|policy| policy.models).map(|name| (*name).into()).collect();
        names.sort_unstable();
        names.dedup();
        let config = parm_backend::Config {
            models: Some(example.models()),
            load: names.clone(),
            instances: policies
                .iter()
                .filter_map(|policy| NonZeroUsize::new(policy.servers))
                .max()
                .context("no policy to compare")?,
            reload: Duration::ZERO,
            warm_up_runs: RUNS,
            measure: Duration::ZERO,
            ..parm_backend::Config::default()
        };
        let servers = Embedded::start(config, Metrics::embedded(&Registry::new())?)
            .with_context(|| format!("cannot load {names:?}"))?;
        let mut run_times = BTreeMap::new();
        for name in names {
            let config = servers[0].model_config(&ModelRef::latest(&name)).await?;
            let time = config.run_times().first().copied();
            run_times.insert(name.clone(), time.with_context(|| format!("'{name}' was not loaded"))?);
        }
        Ok(Self { folder: example.models(), servers, images: example.images(), run_times })
    }

    /// Returns the cost of a run of each model, as a share of a query's run by `deployed`. The demo emulates run times: a
    /// stand-in or a parity model takes the same share of an emulated run that it takes of a real one.
    pub fn costs(&self, deployed: &str) -> BTreeMap<String, f64> {
        let query = self.run_times.get(deployed).map_or(1.0, Duration::as_secs_f64);
        let cost = |(name, time): (&String, &Duration)| (name.clone(), time.as_secs_f64() / query);
        self.run_times.iter().map(cost).collect()
    }

    /// Returns requests of labelled images, which no model was trained on, and what grades the answers.
    pub async fn traffic(&self, model: &str) -> anyhow::Result<(Inputs, Grader)> {
        let model = self.servers[0].model_metadata(&ModelRef::latest(model)).await?;
        let images = Column { input: None, path: self.images.join("images-idx3-ubyte.gz") };
        let recorded = Recorded::read(&model, &[images], 1)?;
        let recorded = recorded.with_labels(&self.images.join("labels-idx1-ubyte.gz"))?;
        Ok((Inputs::Recorded(recorded), Grader::new(&model, None)?))
    }
}
