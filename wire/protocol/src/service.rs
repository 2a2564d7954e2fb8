//! What a server must be able to do; frontend and worker both implement it.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use crate::fleet::{Caller, Giver};
use crate::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ModelStatistics,
    ServerMetadata,
};

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Transport {
    Http,
    Grpc,
    Frames,
}

/// What is known about a request beside its content.
#[derive(Clone, Debug)]
pub struct Context {
    /// When the request was read off the wire.
    pub arrived: Instant,
    /// The transport's own deadline (gRPC's `grpc-timeout`, a frame's remaining time), if it sent one. The
    /// `timeout` parameter is the service's to read.
    pub deadline: Option<Instant>,
    /// How it came in.
    pub transport: Transport,
    /// W3C `traceparent`, if the client sent one.
    pub traceparent: Option<String>,
    /// Who sent it, where frontends share the server's instances and it is one of them.
    pub caller: Option<Caller>,
    /// The name of the key that it came with, where one is asked for.
    pub key: Option<Arc<str>>,
}

/// A server of the Open Inference Protocol.
///
/// Dropping the future of [`infer`](Self::infer) means that the client went away: work that nobody waits for any more
/// must be given up.
pub trait InferenceService: Send + Sync + 'static {
    /// Whether the process works at all.
    fn is_live(&self) -> bool {
        true
    }

    /// Whether requests should be sent here: false while starting and while draining.
    fn is_ready(&self) -> bool;

    /// Whether one model can be served now. Unknown models are an error.
    fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Error>;

    /// Name, version, extensions.
    fn server_metadata(&self) -> ServerMetadata;

    /// A model's tensors.
    fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Error>;

    /// A model's configuration.
    fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Error>;

    /// Statistics of one model (all its versions unless one is named), or of all models.
    fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error>;

    /// The models of the repository and their states.
    fn repository_index(&self, ready_only: bool) -> Result<Vec<ModelIndex>, Error>;

    /// Loads (or reloads) a model by name.
    fn load_model(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Unloads a model by name.
    fn unload_model(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Who gives tokens, if anybody does.
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        None
    }

    /// Answers a request.
    fn infer(
        &self,
        request: InferRequest,
        context: Context,
    ) -> impl Future<Output = Result<InferResponse, Error>> + Send;

    /// Called by the server for each request that it turned away before [`infer`](Self::infer) saw it (malformed,
    /// too large, unauthenticated, ...), so that every rejection is counted.
    fn rejected(&self, _error: &Error, _transport: Transport) {}
}
