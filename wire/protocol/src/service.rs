//! The trait of a server, which frontend and worker both implement.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use crate::fleet::{Caller, Giver};
use crate::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ModelStatistics,
    OpaqueAnswer, OpaqueRequest, ServerMetadata,
};

/// The transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Transport {
    Http,
    Grpc,
    Frames,
}

/// Metadata of a request.
#[derive(Debug)]
pub struct Context {
    /// When the request was read off the wire.
    pub arrived: Instant,
    /// The transport's own deadline (gRPC's `grpc-timeout`, a frame's remaining time), if it sent one. The service
    /// reads the `timeout` parameter itself.
    pub deadline: Option<Instant>,
    /// The transport.
    pub transport: Transport,
    /// W3C `traceparent`, if the client sent one.
    pub traceparent: Option<String>,
    /// The frontend that sent it, if it needs grants.
    pub caller: Option<Caller>,
    /// The name of its key, if keys are required.
    pub key: Option<Arc<str>>,
}

impl Context {
    /// A request without any of the optional metadata.
    pub fn new(arrived: Instant, transport: Transport) -> Self {
        Self { arrived, deadline: None, transport, traceparent: None, caller: None, key: None }
    }
}

/// A server of the Open Inference Protocol. Whatever a service does not define beside `infer` is that of a server that is ready,
/// describes no model and changes none.
///
/// Dropping the future of [`infer`](Self::infer) means that the client went away: the service must give up the work.
pub trait InferenceService: Send + Sync + 'static {
    /// Whether the process works.
    fn is_live(&self) -> bool {
        true
    }

    /// Whether the server accepts requests: false while starting and while draining.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether one model can be served now. An unknown model is an error.
    fn is_model_ready(&self, _model: &ModelRef) -> Result<bool, Error> {
        Err(unsupported("the readiness of a model"))
    }

    /// Name, version, extensions.
    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata::default()
    }

    /// A model's tensors.
    fn model_metadata(&self, _model: &ModelRef) -> Result<ModelMetadata, Error> {
        Err(unsupported("metadata of a model"))
    }

    /// A model's configuration.
    fn model_config(&self, _model: &ModelRef) -> Result<ModelConfig, Error> {
        Err(unsupported("the configuration of a model"))
    }

    /// Statistics of one model (all its versions unless one is named), or of all models.
    fn statistics(&self, _model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        Err(unsupported("statistics"))
    }

    /// The models of the repository and their states.
    fn repository_index(&self, _ready_only: bool) -> Result<Vec<ModelIndex>, Error> {
        Err(unsupported("the list of models"))
    }

    /// Loads (or reloads) a model by name.
    fn load_model(&self, _name: &str) -> impl Future<Output = Result<(), Error>> + Send {
        async { Err(unsupported("loading models")) }
    }

    /// Unloads a model by name.
    fn unload_model(&self, _name: &str) -> impl Future<Output = Result<(), Error>> + Send {
        async { Err(unsupported("unloading models")) }
    }

    /// The giver of grants, if frontends may share the service.
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        None
    }

    /// Answers a request.
    fn infer(
        &self,
        request: InferRequest,
        context: Context,
    ) -> impl Future<Output = Result<InferResponse, Error>> + Send;

    /// Whether requests of this path go to upstream servers and not to this service's own endpoints.
    fn forwards(&self, _path: &str) -> bool {
        false
    }

    /// Answers a request whose path [`forwards`](Self::forwards) accepts.
    fn forward(
        &self,
        request: OpaqueRequest,
        _context: Context,
    ) -> impl Future<Output = Result<OpaqueAnswer, Error>> + Send {
        async move { Err(Error::UnknownPath { path: request.target.path().to_owned() }) }
    }

    /// Called for each request that the server rejected before [`infer`](Self::infer) (malformed, too large,
    /// unauthenticated, ...), so that every rejection is counted.
    fn rejected(&self, _error: &Error, _transport: Transport) {}
}

pub(crate) fn unsupported(what: &str) -> Error {
    Error::Unimplemented { what: what.into() }
}
