//! Models behind the interfaces of servers and of clients.

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::fleet::Giver;
use parm_protocol::{
    Context, Error as Refusal, InferRequest, InferResponse, InferenceService, ModelConfig, ModelIndex,
    ModelMetadata, ModelRef, ModelStatistics, ServerMetadata, Transport,
};
use parm_transport::trace;
use prometheus::Registry;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::host::{Call, Host, Layout, Loaded};
use crate::instance::Grants;
use crate::{Chat, Config, Error, Faults, Metrics};

/// The protocol extensions on offer, by Triton's names.
const EXTENSIONS: [&str; 4] = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

/// Serves the models of a repository on its instances, over the protocol. Cheap to clone.
#[derive(Clone)]
pub struct Worker {
    host: Arc<Host>,
}

impl Worker {
    /// Starts the instances. The worker is not ready before [`load`](Self::load).
    pub fn start(config: Config, metrics: Metrics) -> Result<Self, Error> {
        Ok(Self { host: Host::start(config, metrics, Layout::Shared)? })
    }

    /// Loads the configured models and starts to follow the repository. Blocks until the models are loaded.
    pub fn load(&self) -> Result<(), Error> {
        self.host.load_all()?;
        self.host.follow()
    }

    /// Fault injection; an error if the configuration forbids it.
    pub fn faults(&self) -> Result<&Faults, Error> {
        self.host.faults.as_deref().ok_or(Error::FaultsDisabled)
    }

    /// Starts the emulated chat server, if the configuration names its model. Its metrics join the registry.
    pub fn chat(&self, registry: &Registry) -> Result<Option<Chat>, Error> {
        Chat::start(&self.host.config.chat, self.host.faults.clone(), registry)
    }

    /// Models that are not loaded, with the reasons.
    pub fn absent(&self) -> Vec<ModelIndex> {
        self.host.absent()
    }

    /// Becomes not ready, and waits until all current requests are answered.
    pub async fn drain(&self, longest: Duration) -> Result<(), Error> {
        self.host.drain(longest).await
    }
}

impl InferenceService for Worker {
    fn is_ready(&self) -> bool {
        self.host.is_ready()
    }

    fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Refusal> {
        match self.host.catalogue.find(model) {
            Ok(_) => Ok(true),
            Err(Refusal::NoInstance { .. } | Refusal::Unavailable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "parm-worker".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(String::from).to_vec(),
            place: self.host.place.clone(),
        }
    }

    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Refusal> {
        let catalogue = &self.host.catalogue;
        let metadata = catalogue.find(model)?.metadata.clone();
        Ok(ModelMetadata { versions: catalogue.versions(&model.name), ..metadata })
    }

    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Refusal> {
        Ok(self.host.catalogue.find(model)?.config.clone())
    }

    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Refusal> {
        let models: Vec<Arc<Loaded>> = match model {
            Some(model) if model.version.is_some() => vec![self.host.catalogue.find(model)?],
            model => self.host.catalogue.all_ready(model.map(|model| &*model.name))?,
        };
        let report = |model: Arc<Loaded>| model.statistics.report(model.labels().0, model.labels().1);
        Ok(models.into_iter().map(report).collect())
    }

    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Refusal> {
        Ok(self.host.catalogue.index(ready_only))
    }

    async fn load_model(&self, name: &str) -> Result<(), Refusal> {
        self.host.load_model(name).await
    }

    async fn unload_model(&self, name: &str) -> Result<(), Refusal> {
        self.host.unload_model(name).await
    }

    /// With batches nothing grants the threads: a request that waits at its frontend cannot join a batch here.
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        let [queue] = &self.host.queues[..] else { return None };
        let granted = self.host.config.batching.max_batch.get() == 1;
        granted.then(|| Arc::new(Grants(queue.clone())) as Arc<dyn Giver>)
    }

    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Refusal> {
        let Context { arrived, deadline, traceparent, caller, .. } = context;
        let span = span(&request, "worker", traceparent.as_deref());
        within(span, self.host.infer(0, Call { request, arrived, deadline, caller })).await
    }

    fn rejected(&self, error: &Refusal, _: Transport) {
        self.host.metrics.failed(None, error.reason());
    }
}

/// An instance inside the process.
///
/// A frontend treats it exactly like a remote worker: one client per instance. Requests go through a queue and a one-shot
/// channel instead of a socket, and tensors are never copied. Instances that were started together share their models'
/// weights if the engine supports it, their fault injection, and what is loaded.
#[derive(Clone)]
pub struct Embedded {
    worker: Worker,
    number: usize,
    peer: String,
}

impl Embedded {
    /// Starts the configured number of instances and loads their models. Blocks until they are loaded.
    pub fn start(config: Config, metrics: Metrics) -> Result<Vec<Self>, Error> {
        let worker = Worker { host: Host::start(config, metrics, Layout::Separate)? };
        worker.load()?;
        let instance = |number| Self { worker: worker.clone(), number, peer: format!("embedded/{number}") };
        Ok((0..worker.host.queues.len()).map(instance).collect())
    }

    /// All instances that were started together.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }
}

impl Client for Embedded {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Refusal>> {
        let span = span(&request, &self.peer, context.traceparent.as_deref());
        let call = Call { request, arrived: Instant::now(), deadline: context.deadline, caller: None };
        Box::pin(within(span, self.worker.host.infer(self.number, call)))
    }

    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Refusal>> {
        Box::pin(std::future::ready(Ok(self.worker.is_ready())))
    }

    /// An instance's thread cannot be stopped during a run, and takes no other job until its end.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.worker.host.queues[self.number].settled())
    }

    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Refusal>> {
        Box::pin(std::future::ready(Ok(self.worker.server_metadata())))
    }

    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Refusal>> {
        Box::pin(std::future::ready(self.worker.model_metadata(model)))
    }

    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Refusal>> {
        Box::pin(std::future::ready(self.worker.model_config(model)))
    }

    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Refusal>> {
        Box::pin(std::future::ready(self.worker.repository_index(false)))
    }

    fn load_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.worker.load_model(name))
    }

    fn unload_model<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.worker.unload_model(name))
    }
}

/// The span of a request at `place`, which is an instance or the worker: a child of the frontend's or the client's span.
///
/// Its level is `debug` and it has its own target, so that without a collector it is disabled at its call site and costs a
/// load and a branch.
fn span(request: &InferRequest, place: &str, traceparent: Option<&str>) -> Span {
    let span = tracing::debug_span!(
        target: "parm_backend::trace",
        "infer",
        model = %request.model.name,
        id = %request.id,
        place,
    );
    if let Some(traceparent) = traceparent {
        trace::adopt(&span, traceparent);
    }
    span
}

/// Awaits an answer within a span.
async fn within<T>(span: Span, answer: impl Future<Output = T>) -> T {
    if span.is_disabled() { answer.await } else { answer.instrument(span).await }
}
