//! Models in memory, and the instances that run them.
//!
//! ```text
//! worker:    requests -> one queue -> N threads             an idle instance takes the next request
//! embedded:  requests -> N queues  -> one thread each       the dispatcher chooses the instance
//! ```
//! Both load a model once and share its weights between threads if the engine supports it.

mod catalogue;
mod load;
mod refresh;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use parm_parity_models::repository::{Repository, Watch};
use parm_protocol::fleet::{Caller, SHARE};
use parm_protocol::texts::set_tokens;
use parm_protocol::{
    Error as Refusal, InferRequest, InferResponse, ModelIndex, ModelRef, NamedTensor, Parameters, Place,
    Rows, validate,
};
use parm_shares::Table;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use catalogue::Loaded;
use catalogue::{Catalogue, Site};
pub use load::{processor, try_file};
use refresh::Orders;

use crate::engine;
use crate::instance::Payer;
use crate::instance::{Job, Pending, Queue, Seats, Setup};
use crate::{Config, Error, Faults, Metrics};

/// Priority of requests that set none, between 1 (first) and 255 (last).
const DEFAULT_PRIORITY: u8 = 128;

/// Timeout of a request without a `timeout`, and the longest that a request can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The relation of instances and queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All instances take from one queue.
    Shared,
    /// Each instance has its own.
    Separate,
}

/// Models, queues and instances of one process.
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) place: Place,
    layout: Layout,
    pub(crate) metrics: Metrics,
    pub(crate) faults: Option<Arc<Faults>>,
    repository: Option<Repository>,
    /// The state of the repository before its models were loaded, if it is followed.
    watch: Mutex<Option<Watch>>,
    pub(crate) catalogue: Catalogue,
    /// Entries of the repository and configured names that are not models, with the reasons.
    ignored: Mutex<Vec<ModelIndex>>,
    shares: Table,
    orders: Orders,
    pub(crate) queues: Vec<Arc<Queue>>,
    /// An instance of each queue, for runs on reading threads.
    runners: Vec<Setup>,
    seats: Seats,
    started: AtomicBool,
    draining: AtomicBool,
}

/// Ends the threads, and does not wait: a hung model must not keep the process from ending.
impl Drop for Host {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.close());
    }
}

/// A request with its metadata.
pub(crate) struct Call {
    pub(crate) request: InferRequest,
    pub(crate) arrived: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) caller: Option<Caller>,
}

impl Host {
    /// Starts the instances, without models: see [`load_all`](Self::load_all).
    pub(crate) fn start(config: Config, metrics: Metrics, layout: Layout) -> Result<Arc<Self>, Error> {
        let repository = config.models.as_ref().map(Repository::open).transpose()?;
        if repository.is_some() {
            let chosen = engine::choose(&config.engine.name, &config.engine)?;
            if chosen.cuda.is_none() && config.engine.device != "cpu" {
                tracing::warn!(engine = chosen.name, "models run on {}", chosen.about);
            } else {
                tracing::info!(engine = chosen.name, "models run on {}", chosen.about);
            }
        }
        let faults = config.faults.then(Arc::<Faults>::default);
        let count = if layout == Layout::Shared { 1 } else { config.instances.get() };
        let queues: Vec<_> = (0..count)
            .map(|_| Arc::new(Queue::new(&config, config.instances.get() / count, &metrics)))
            .collect();
        let setups = (0..config.instances.get()).map(|number| {
            let (queue, faults) = (queues[number % count].clone(), faults.clone());
            Setup { number, queue, faults }
        });
        let setups: Vec<_> = setups.collect();
        setups.iter().cloned().try_for_each(Setup::start)?;
        Ok(Arc::new(Self {
            shares: Table::new(&config.shares),
            place: Place { node: config.node.clone(), zone: config.zone.clone(), card: config.card.clone() },
            config,
            layout,
            metrics,
            faults,
            repository,
            watch: Mutex::default(),
            catalogue: Catalogue::default(),
            ignored: Mutex::default(),
            orders: Orders::default(),
            runners: setups.into_iter().take(count).collect(),
            seats: Seats::default(),
            queues,
            started: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }))
    }

    /// Models that are not loaded, with the reasons.
    pub(crate) fn absent(&self) -> Vec<ModelIndex> {
        let mut absent = self.catalogue.absent();
        absent.extend(self.ignored.lock().iter().cloned());
        absent
    }

    /// Whether there is an emulated chat server; frontends have none.
    fn chats(&self) -> bool {
        self.layout == Layout::Shared && self.config.chat.model.is_some()
    }

    /// Whether to accept requests: the configured models have been tried, at least one is loaded or emulated by the chat
    /// server, and no drain has begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.started.load(Ordering::Acquire)
            && !self.draining.load(Ordering::Acquire)
            && (self.catalogue.any_ready() || self.chats())
    }

    /// Answers a request on a queue.
    pub(crate) async fn infer(&self, queue: usize, call: Call) -> Result<InferResponse, Refusal> {
        let arrived = call.arrived;
        let model = self.catalogue.find(&call.request.model);
        let outcome = match &model {
            Ok(model) => self.run(queue, model, call).await,
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = &outcome {
            let served = model.as_ref().ok();
            self.metrics.failed(served.map(|model| model.labels()), error.reason());
            if let Some(model) = served {
                model.statistics.failed(arrived.elapsed());
            }
        }
        outcome
    }

    async fn run(&self, queue: usize, model: &Arc<Loaded>, call: Call) -> Result<InferResponse, Refusal> {
        let Call { request, arrived, deadline, caller } = call;
        validate::reject_sequences(&request.parameters)?;
        validate::independent(&request, model.rows() != Rows::Whole)?;
        let rows = validate(&request, &model.metadata, model.rows())?;
        refuse_classification(&request)?;
        let number = |name: &str| request.parameters.get(name).and_then(|value| value.as_u64());
        let priority = match number("priority") {
            None | Some(0) => DEFAULT_PRIORITY,
            Some(priority) => u8::try_from(priority).unwrap_or(u8::MAX),
        };
        let longest = LONGEST_WAIT;
        let timeout = number("timeout").filter(|&timeout| timeout > 0);
        let wait = timeout.map_or(longest, |timeout| Duration::from_micros(timeout).min(longest));
        let deadline = deadline.map_or(arrived + wait, |deadline| deadline.min(arrived + wait));
        let inputs = validate::in_model_order(request.inputs, &model.metadata);
        let inputs = inputs.into_iter().map(|input| input.tensor).collect();
        let payer = self.payer(model, &request.parameters);
        let frontend = caller.map(Caller::comes);
        let (reply, answer) = oneshot::channel();
        let (model_of, pending) = (model.clone(), Some(Pending::of(model)));
        let job = Job {
            model: model_of,
            payer,
            inputs,
            rows,
            priority,
            arrived,
            deadline,
            frontend,
            reply,
            pending,
        };
        let job = self.run_where_read(queue, model.site(rows), job);
        job.map_or(Ok(()), |job| self.queues[queue].push(job))?;
        let late = || Refusal::DeadlineExceeded { waited: arrived.elapsed() };
        let lost = |_| Refusal::Unavailable { message: "the instance has stopped: try another".into() };
        let answer = tokio::time::timeout_at(deadline, answer).await.map_err(|_| late())?;
        let mut outputs = answer.map_err(lost)??;
        let mut parameters = Parameters::new();
        if model.counts_tokens
            && let Some(tokens) = outputs.pop()
        {
            let counts = tokens.data().chunks_exact(4);
            let counts =
                counts.map(|count| u32::from_le_bytes([count[0], count[1], count[2], count[3]]).into());
            set_tokens(&mut parameters, counts);
        }
        let named = model.metadata.outputs.iter().zip(outputs);
        let wanted = |name: &str| {
            request.outputs.is_empty() || request.outputs.iter().any(|wanted| wanted.name == *name)
        };
        let outputs = named.filter(|(declared, _)| wanted(&declared.name));
        Ok(InferResponse {
            model_name: model.metadata.name.clone(),
            model_version: model.version.clone(),
            id: request.id,
            parameters,
            outputs: outputs.map(|(declared, tensor)| NamedTensor::new(&*declared.name, tensor)).collect(),
        })
    }

    /// Runs a job on a reading thread, if it may and an instance is free; otherwise returns it. Longer runs are allowed
    /// only for the frontend of this process, whose own timers detect late queries.
    fn run_where_read(&self, queue: usize, site: Site, job: Job) -> Option<Job> {
        let is_ours = self.layout == Layout::Separate;
        if site == Site::Apart || self.faults.is_some() || (site == Site::LookedAfter && !is_ours) {
            return Some(job);
        }
        let seat = if is_ours { self.seats.take() } else { None };
        if is_ours && seat.is_none() {
            return Some(job);
        }
        let runner = &self.runners[queue];
        let Some(ticket) = runner.queue.begin(&job) else { return Some(job) };
        match (site, seat) {
            (Site::LookedAfter, Some(seat)) => {
                let runner = runner.clone();
                seat.spawn(move || runner.end(job, ticket));
            }
            (_, _seat) => runner.end(job, ticket),
        }
        None
    }

    /// The share of a request. Unknown names are charged to the model, as by workers without shares.
    fn payer(&self, model: &Loaded, parameters: &Parameters) -> Payer {
        let named = parameters.get(SHARE).and_then(|share| share.as_str());
        let serves = |name: &str| self.catalogue.find(&ModelRef::latest(name)).is_ok();
        let named = named.and_then(|share| Payer::named(share, &self.shares, serves));
        named.unwrap_or_else(|| model.payer.clone())
    }

    /// Reports not ready, and waits until nothing waits or runs. New requests are still accepted.
    pub(crate) async fn drain(&self, longest: Duration) -> Result<(), Error> {
        self.draining.store(true, Ordering::Release);
        let idle = async {
            for queue in &self.queues {
                queue.wait_idle().await;
            }
        };
        tokio::time::timeout(longest, idle).await.map_err(|_| Error::DrainTimeout { waited: longest })
    }
}

/// Triton's classification extension returns strings of an output's largest values. Ignoring it would give a wrong
/// answer; implementing it would copy every output, and the names of classes are unknown.
fn refuse_classification(request: &InferRequest) -> Result<(), Refusal> {
    let classified = request.outputs.iter().find(|output| output.parameters.contains_key("classification"));
    classified.map_or(Ok(()), |output| {
        let name = &output.name;
        Err(Refusal::Malformed {
            message: format!(
                "cannot classify output '{name}': classification is not supported: omit it and take the largest \
                 values"
            ),
        })
    })
}
