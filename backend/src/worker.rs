//! A worker, which serves models over the protocol.

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::fleet::Giver;
use parm_protocol::{
    Context, Error as Refusal, InferRequest, InferResponse, InferenceService, ModelConfig, ModelIndex,
    ModelMetadata, ModelRef, ModelStatistics, ServerMetadata, Transport,
};

use prometheus::Registry;

use crate::host::{Call, Host, Layout};
use crate::{Chat, Config, Error, Faults, Metrics, trace};

/// Serves the models of a repository on its instances. Cheap to clone.
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
        self.host.faults()
    }

    /// Starts the emulated chat server, if the configuration names its model. Its metrics join the registry.
    pub fn chat(&self, registry: &Registry) -> Result<Option<Chat>, Error> {
        self.host.chat(registry)
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
        self.host.is_model_ready(model)
    }

    fn server_metadata(&self) -> ServerMetadata {
        self.host.server_metadata()
    }

    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Refusal> {
        self.host.model_metadata(model)
    }

    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Refusal> {
        self.host.model_config(model)
    }

    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Refusal> {
        self.host.statistics(model)
    }

    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Refusal> {
        Ok(self.host.catalogue().index(ready_only))
    }

    async fn load_model(&self, name: &str) -> Result<(), Refusal> {
        self.host.load_model(name).await
    }

    async fn unload_model(&self, name: &str) -> Result<(), Refusal> {
        self.host.unload_model(name).await
    }

    fn giver(&self) -> Option<Arc<dyn Giver>> {
        self.host.giver()
    }

    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Refusal> {
        let Context { arrived, deadline, traceparent, caller, .. } = context;
        let span = trace::infer(&request, "worker", traceparent.as_deref());
        trace::within(span, self.host.infer(0, Call { request, arrived, deadline, caller })).await
    }

    fn rejected(&self, error: &Refusal, _: Transport) {
        self.host.metrics().failed(None, error.reason());
    }
}
