//! The trait of a client of one server, whatever transport carries it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parm_grants::Order;
use tokio::time::Instant;

use crate::fleet::Watcher;
use crate::service::unsupported;
use crate::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, OpaqueAnswer,
    OpaqueRequest, ServerMetadata,
};

/// A boxed future, so that the transports can sit behind `dyn Client`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Metadata that travels with a request.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// When the caller stops waiting; sent to the server and enforced by the client as well.
    pub deadline: Option<Instant>,
    /// W3C `traceparent` to send along.
    pub traceparent: Option<String>,
    /// The share of the server's instances that the request is charged to, if not its model's own. Only frames carry it.
    pub share: Option<Arc<str>>,
    /// Whether the server must not run the request twice: it is not sent again after the server may have read it.
    pub once: bool,
}

/// A client of one server of the Open Inference Protocol.
///
/// Dropping a returned future cancels the request, at the server too if the transport supports it.
pub trait Client: Send + Sync + 'static {
    /// The server's address, for messages.
    fn peer(&self) -> &str;

    /// Sends a request and waits for its answer.
    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>>;

    /// Forwards a request that is not of the protocol, and waits until its answer begins; `Unimplemented` unless the server
    /// is an upstream. Shared, because copies of it may run elsewhere.
    fn forward(
        &self,
        _request: Arc<OpaqueRequest>,
        _context: CallContext,
    ) -> BoxFuture<'_, Result<OpaqueAnswer, Error>> {
        Box::pin(async { Err(unsupported("requests outside of the protocol")) })
    }

    /// Registers a receiver of what the server says. It receives nothing if the server grants nothing.
    fn watch(&self, _watcher: Arc<dyn Watcher>) {}

    /// Tells the server what this frontend would start there. It is lost if the connection takes no requests.
    fn tell(&self, _order: Order) {}

    /// Whether the server reports that it is ready.
    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>>;

    /// Waits until cancelled requests no longer keep the server busy, as far as the client can know: until it answers a
    /// probe.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Any response will do, an error included.
            let _ = self.is_ready().await;
        })
    }

    /// Name, version, extensions.
    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>>;

    /// A model's tensors.
    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>>;

    /// A model's configuration; `Unimplemented` if the server has no such endpoint.
    fn model_config<'a>(&'a self, _model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>> {
        Box::pin(async { Err(unsupported("the configuration of a model")) })
    }

    /// The models of the server's repository; `Unimplemented` if the server has no such endpoint.
    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>>;

    /// Loads (or reloads) a model by name; `Unimplemented` if the server has no such endpoint.
    fn load_model<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Err(unsupported("loading models")) })
    }

    /// Unloads a model by name; `Unimplemented` if the server has no such endpoint.
    fn unload_model<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Err(unsupported("unloading models")) })
    }
}
