//! Frontend as a server of the Open Inference Protocol.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_captures::Source;
use parm_dispatcher::{Reject, Shape};
use parm_protocol::client::Client;
use parm_protocol::validate::{in_model_order, independent, validate};
use parm_protocol::{
    Code, Context, Error, InferRequest, InferResponse, InferenceService, ModelConfig, ModelIndex,
    ModelMetadata, ModelRef, ModelStatistics, OpaqueAnswer, OpaqueRequest, Place, Rows, ServerMetadata,
    Transport,
};
use tokio::time::Instant;
use tracing::Instrument;

use super::call::Failed;
use super::clock::Timers;
use super::coding::LoadNets;
use super::core::{Core, Dispatch, Reloaded};
use super::driver::{Held, Submission};
use super::inputs::Inputs;
use super::outputs::{self, Outcome};
use super::pool::Pool;
use super::terms::{self, Terms};
use super::trace;
use crate::admin;
use crate::config::Config;
use crate::discovery::{self, Connect, Fleet, Member};

/// Extensions of the protocol that the server supports.
const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics"];

/// Why a request has no answer.
struct FailedRequest {
    error: Error,
    /// Whether an instance did not know the model at the last attempt, and a new description of all may help.
    is_outdated: bool,
}

impl From<Error> for FailedRequest {
    fn from(error: Error) -> Self {
        Self { error, is_outdated: false }
    }
}

/// Serves models through instances, and hides slow and dead ones.
#[derive(Clone)]
pub struct Frontend {
    pub(crate) core: Arc<Core>,
    pub(crate) fleet: Arc<Fleet>,
}

impl Frontend {
    /// Rejects settings with which no frontend starts. Starts nothing.
    pub fn check(config: &Config) -> Result<(), crate::Error> {
        Core::check(config)
    }

    /// Starts a frontend that finds the configured workers through `connect`. Must be called inside a runtime.
    pub fn start(config: Config, connect: Arc<dyn Connect>, timers: Timers) -> Result<Self, crate::Error> {
        Self::over(Core::start(config, timers, None)?, connect)
    }

    /// Like `start`, with `nets` as the loader of the nets of learned codes.
    pub fn start_with_nets(
        config: Config,
        connect: Arc<dyn Connect>,
        timers: Timers,
        nets: Arc<dyn LoadNets>,
    ) -> Result<Self, crate::Error> {
        Self::over(Core::start(config, timers, Some(nets))?, connect)
    }

    fn over(core: Arc<Core>, connect: Arc<dyn Connect>) -> Result<Self, crate::Error> {
        let fleet = Fleet::start(core.clone(), connect)?;
        Ok(Self { core, fleet })
    }

    /// Adds an instance of this process. `node` is the failure domain that its instances share, such as the machine.
    pub fn embed(&self, client: Arc<dyn Client>, node: Option<&str>) -> Result<(), crate::Error> {
        self.fleet.embed(client, node).map(|_| ())
    }

    /// Whether every embedded instance has joined or has reported why it cannot. Remote servers may take longer.
    pub fn is_settled(&self) -> bool {
        self.fleet.is_settled()
    }

    /// Renders the Prometheus page.
    pub fn metrics(&self) -> String {
        self.core.page(&self.fleet.readings())
    }

    /// Counts of the state kept for requests and instances.
    pub fn held(&self) -> Held {
        self.core.driver.held()
    }

    /// The admin API, ready to be served.
    pub fn admin(&self) -> admin::Api {
        admin::Api::new(self.clone())
    }

    /// Reports not ready from now on, so that load balancers turn away. New requests are still answered.
    pub fn start_draining(&self) {
        self.core.requests.close();
    }

    /// Applies the differences between two versions of the configured dispatch settings. Live changes of others stay.
    pub fn reload_dispatch(&self, before: &Dispatch, now: &Dispatch) -> Result<Reloaded, crate::Error> {
        self.core.reload_settings(before, now)
    }

    /// Adds servers of the configuration, then removes others. The error is that of the first that cannot be added.
    pub fn replace_servers(&self, added: &[String], removed: &[String]) -> Result<(), crate::Error> {
        for url in added {
            match self.fleet.add(url, discovery::Source::Static, Place::default()) {
                Ok(_) | Err(crate::Error::DuplicateInstance { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let is_listed = |source| matches!(source, discovery::Source::Static | discovery::Source::Admin);
        let is_gone = |member: &&Arc<Member>| is_listed(member.source) && removed.contains(&member.name);
        for member in self.fleet.members().iter().filter(is_gone) {
            // It may have been removed meanwhile.
            let _ = self.fleet.remove(member.number);
        }
        Ok(())
    }

    /// The names that no instance serves, once a worker has listed its models, or the first of upstream servers alone has
    /// joined: all have the same routes.
    pub fn unserved<'a>(&self, names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
        let config = &self.core.config;
        let has_workers = !config.workers.is_empty() || config.workers_file.is_some();
        let is_listed =
            self.core.listed.load(Ordering::Acquire) || !(has_workers || self.core.has_no_instance());
        names.filter(|name| is_listed && self.core.catalog.versions(name).is_empty()).collect()
    }

    /// Reports not ready and waits until all requests are answered.
    pub async fn drain(&self) {
        self.start_draining();
        self.core.requests.wait().await;
    }

    /// Waits until all sampled queries are written.
    pub async fn settle_capture(&self) {
        if let Some(sampler) = &self.core.sampler {
            sampler.settled().await;
        }
    }

    /// Waits for a panic of a part that a frontend cannot run without; the process should exit then.
    pub async fn broken(&self) -> crate::Error {
        crate::Error::Panicked { part: self.core.driver.lifelines.broken().await }
    }

    /// Spawns a task of the embedding program that must not panic either.
    pub fn spawn(&self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.core.driver.lifelines.spawn(&self.core.driver.runtime, part, task);
    }

    /// Counts a request that was rejected or failed.
    pub(super) fn count_rejected(&self, pool: &Pool, why: Reject, rows: usize, took: Duration) {
        pool.sums.rejected(why, rows, took);
        if why == Reject::Deadline {
            pool.sums.expired(rows, took, self.core.driver.usual(pool.id));
        }
    }

    async fn answer(
        &self,
        pool: &Pool,
        submission: Submission,
        context: &Context,
    ) -> Result<(Outcome, usize, InferResponse), FailedRequest> {
        let inputs = submission.inputs.clone();
        let drawn = self.core.sampler.as_ref().filter(|sampler| sampler.draws());
        pool.sums.objective.allows(submission.terms.deadline.since(self.core.driver.now()));
        let verdict = self.core.driver.submit(submission).verdict().instrument(inputs.span.clone()).await;
        let retry_after = self.core.config.requests.retry_after;
        let answers = verdict.map_err(|failed| {
            self.count_rejected(pool, failed.why, inputs.rows, age(context));
            let is_unknown = failed.last.as_ref().is_some_and(|last| last.code() == Code::NotFound);
            let is_outdated = is_unknown && !pool.gives_up_early(failed.attempts);
            FailedRequest { error: refused(pool, failed, age(context), retry_after), is_outdated }
        })?;
        let (outcome, response) = outputs::response(pool, &inputs, answers)?;
        inputs.span.record("outcome", outcome.name());
        if let Some(sampler) = drawn {
            let source = Source { model: pool.model.name.clone(), version: pool.version.clone() };
            sampler.keep(source, (&inputs.tensors, &response.outputs), outcome);
        }
        Ok((outcome, inputs.rows, response))
    }

    fn submission(
        &self,
        pool: &Arc<Pool>,
        request: InferRequest,
        terms: Terms,
        context: &Context,
    ) -> Result<Submission, Error> {
        let limits = &self.core.config.requests;
        independent(&request, pool.batched)?;
        let rows = validate(&request, &pool.metadata, pool.rows(limits.max_rows))?;
        let span = trace::query(&request.model.name, &request.id, None, context);
        let tensors = in_model_order(request.inputs, &pool.metadata);
        let parameters = terms::forwarded(request.parameters);
        let (id, outputs) = (request.id, request.outputs);
        let mut inputs = Inputs { id, parameters, tensors, outputs, rows, guarded_by: 0, span, opaque: None };
        // Parameters for an instance apply to its whole batch, so a query with parameters shares no batch.
        let plain = inputs.is_plain();
        let mixes = if plain { pool.mixes(&inputs.tensors) } else { None };
        let codable = mixes.is_some() && pool.reconstructs(&inputs.outputs);
        inputs.guarded_by = mixes.unwrap_or(0);
        // With a policy that never repeats a query, another client's row in its batch could fail it for good.
        let shares = plain && !pool.is_once();
        let name = match shares {
            true => pool.shapes.name(&inputs.tensors, pool.batched),
            false => pool.shapes.alone(),
        };
        let shape = Shape { name, size: inputs.size() };
        Ok(Submission { pool: pool.clone(), inputs: Arc::new(inputs), shape, terms, codable })
    }

    /// Answers a request; `pool` is set to the one that did. If the pool is removed meanwhile, the pool that replaced
    /// it answers, so that the model's name stays valid.
    async fn infer_at(
        &self,
        pool: &mut Arc<Pool>,
        request: InferRequest,
        context: &Context,
    ) -> Result<(Outcome, usize, InferResponse), Error> {
        let names_version = request.model.version.is_some();
        let core = &self.core;
        let terms =
            Terms::read(&request, context, &core.config.requests, &core.driver.shares, &core.driver.clock)?;
        let submission = self.submission(pool, request, terms, context)?;
        let inputs = submission.inputs.clone();
        let failed = match self.answer(pool, submission, context).await {
            Ok(answered) => return Ok(answered),
            Err(failed) => match failed.error.code() {
                Code::Unavailable | Code::NotFound => failed,
                _ => return Err(failed.error),
            },
        };
        if failed.is_outdated {
            // Its instances have replaced or unloaded it since they were described.
            let patience = Instant::now() + core.config.instances.health_timeout;
            self.fleet.describe_again(pool, patience.min(core.driver.clock.instant(terms.deadline))).await;
        }
        let Some(heir) = self.heir(pool, names_version) else { return Err(failed.error) };
        *pool = heir;
        let (parameters, outputs) = (inputs.parameters.clone(), inputs.outputs.clone());
        let request = InferRequest {
            model: ModelRef { version: names_version.then(|| pool.version.clone()), ..(*pool.model).clone() },
            id: inputs.id.clone(),
            parameters,
            inputs: inputs.tensors.clone(),
            outputs,
        };
        let submission = self.submission(pool, request, terms, context)?;
        self.answer(pool, submission, context).await.map_err(|refused| refused.error)
    }

    /// The pool that answers instead: the one that replaced it.
    fn heir(&self, pool: &Pool, names_version: bool) -> Option<Arc<Pool>> {
        let version = names_version.then(|| pool.version.clone());
        let model = ModelRef { version, ..ModelRef::latest(&pool.model.name) };
        self.core.catalog.find(&model).ok().filter(|found| found.id != pool.id)
    }
}

impl Frontend {
    /// Whether an instance accepts its queries. Clients that accept stand-ins are answered in an outage.
    fn answers(&self, pool: &Pool) -> bool {
        let reading = self.core.driver.reading(pool.id);
        reading.is_some_and(|reading| reading.usable_instances > 0 || reading.in_outage)
    }

    /// The pool of a request. The error says why an instance that has the model does not serve it.
    fn find(&self, model: &ModelRef) -> Result<Arc<Pool>, Error> {
        // Read first: a model that is listed meanwhile is found.
        let is_listed = self.core.listed.load(Ordering::Acquire);
        self.core.catalog.find(model).map_err(|error| {
            // The former instances may have been removed before the new ones are connected.
            if !is_listed || self.fleet.is_unreached() {
                let name = &model.name;
                let message = format!(
                    "model '{name}' is not known yet: no worker has listed its models: retry, and check the workers' addresses"
                );
                return Error::Unavailable { message };
            }
            let known = |absent: &ModelIndex| absent.name == model.name && !absent.reason.is_empty();
            match (&error, self.fleet.absent().into_iter().find(known)) {
                (Error::UnknownModel { name }, Some(ModelIndex { reason, .. })) => Error::Remote {
                    code: Code::NotFound,
                    message: format!("model '{name}' is not loaded: {reason}"),
                },
                _ => error,
            }
        })
    }
}

impl InferenceService for Frontend {
    fn is_ready(&self) -> bool {
        // The models of an instance join one after another, and requests for the last of them may be the first to come.
        !self.core.requests.is_closed()
            && !self.core.has_no_instance()
            && self.core.catalog.all().iter().any(|pool| pool.is_served() && self.answers(pool))
    }

    fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Error> {
        let pool = match self.find(model) {
            // No worker has listed its models.
            Err(Error::Unavailable { .. }) => return Ok(false),
            found => found?,
        };
        Ok(!self.core.requests.is_closed() && self.answers(&pool))
    }

    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "parm".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
            ..ServerMetadata::default()
        }
    }

    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Error> {
        let pool = self.find(model)?;
        let versions = self.core.catalog.versions(&model.name);
        let served = versions.iter().filter(|pool| pool.is_served() && !pool.version.is_empty());
        Ok(ModelMetadata {
            versions: served.map(|pool| pool.version.clone()).collect(),
            ..pool.metadata.clone()
        })
    }

    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Error> {
        let pool = self.find(model)?;
        let mut config = pool.config();
        if let Rows::UpTo(most) = pool.rows(self.core.config.requests.max_rows) {
            // Instances get parts of a request.
            config.max_batch_size = i32::try_from(most).unwrap_or(i32::MAX);
        }
        Ok(config)
    }

    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        let pools = match model {
            None => self.core.catalog.all(),
            Some(model @ ModelRef { version: Some(_), .. }) => vec![self.find(model)?],
            Some(model) => {
                self.find(model)?;
                self.core.catalog.versions(&model.name)
            }
        };
        Ok(pools.iter().map(|pool| pool.statistics()).collect())
    }

    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Error> {
        Ok(listed(&self.core, self.fleet.absent(), ready_only))
    }

    async fn load_model(&self, name: &str) -> Result<(), Error> {
        self.fleet.load(name).await
    }

    async fn unload_model(&self, name: &str) -> Result<(), Error> {
        self.fleet.unload(name).await
    }

    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Error> {
        let _active = self.core.requests.token();
        let mut pool = match self.find(&request.model) {
            Ok(pool) => pool,
            Err(error) => {
                self.core.metrics.models.rejected(&error);
                return Err(error);
            }
        };
        match self.infer_at(&mut pool, request, &context).await {
            Ok((outcome, rows, response)) => {
                pool.metrics.answered(outcome, rows, age(&context));
                pool.sums.answered(outcome, rows, age(&context));
                Ok(response)
            }
            Err(error) => {
                self.core.failed(&pool, &error, age(&context));
                Err(error)
            }
        }
    }

    fn forwards(&self, path: &str) -> bool {
        self.is_forwarded(path)
    }

    async fn forward(&self, request: OpaqueRequest, context: Context) -> Result<OpaqueAnswer, Error> {
        self.pass_on(request, context).await
    }

    fn rejected(&self, error: &Error, _transport: Transport) {
        self.core.metrics.models.rejected(error);
    }
}

/// Time since a request's arrival, by the runtime's clock.
pub(super) fn age(context: &Context) -> Duration {
    context.arrived.elapsed()
}

/// Builds the index, including models that instances know but do not serve.
///
/// An unloaded model stays listed with its instances' reason, as in Triton, because scripts wait for that. Models that only serve
/// others are marked by a `reason`, which clients ignore for a `READY` model, but not hidden: another frontend in front of this one
/// needs them.
fn listed(core: &Core, absent: Vec<ModelIndex>, ready_only: bool) -> Vec<ModelIndex> {
    let pools = core.catalog.all();
    let mut index: Vec<_> = pools.iter().map(|pool| entry(core, pool)).collect();
    let mut known: BTreeSet<_> =
        pools.iter().map(|pool| (pool.model.name.clone(), pool.version.clone())).collect();
    // Several instances may have unloaded it; the first one's reason is used.
    index
        .extend(absent.into_iter().filter(|model| known.insert((model.name.clone(), model.version.clone()))));
    index.retain(|model| !ready_only || model.state == "READY");
    index
}

fn entry(core: &Core, pool: &Arc<Pool>) -> ModelIndex {
    let served = pool.is_served();
    let reason = match served {
        true => core.serves_others(&pool.model.name).unwrap_or_default(),
        false => "no instance serves the model now".into(),
    };
    ModelIndex {
        name: pool.model.name.clone(),
        version: pool.version.clone(),
        state: if served { "READY" } else { "UNAVAILABLE" }.into(),
        reason,
    }
}

/// The error for the client of a failed request.
pub(super) fn refused(pool: &Pool, failed: Failed, waited: Duration, retry_after: Duration) -> Error {
    let model = &pool.model.name;
    match (failed.why, failed.last) {
        (Reject::QueueFull, _) => Error::Overloaded {
            message: format!(
                "model '{model}' is overloaded: its queue is full: try again later, or add instances"
            ),
            retry_after,
        },
        (Reject::Overload, _) => Error::Overloaded {
            message: format!(
                "model '{model}' is overloaded: the query would miss its deadline: try again later, or add instances"
            ),
            retry_after,
        },
        (Reject::Deadline, _) => Error::DeadlineExceeded { waited },
        (Reject::NoInstance, _) => Error::NoInstance { model: model.clone() },
        (Reject::BadQuery, Some(last)) => last,
        (Reject::Failed(_), Some(last)) => Error::Attempts { last: Box::new(last) },
        (Reject::Failed(_) | Reject::BadQuery, None) => Error::Unavailable {
            message: format!("no instance could run model '{model}': check the instances' health"),
        },
    }
}
