//! One client behind a small trait, over any of the transports.

mod auto;
mod config;
mod deadline;
mod dial;
mod endpoint;
mod frames;
mod grpc;
mod http;
mod status;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

pub use self::config::{Config, Prefer, Tensors, Token};
pub use self::endpoint::{Address, Endpoint, Scheme};
pub use self::frames::Frames;
pub use self::grpc::Grpc;
pub use self::http::Http;

use self::auto::Auto;
use self::dial::Dialer;
use crate::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};

/// A boxed future, so that the transports can sit behind `dyn Client`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What travels with a request beside its content.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// When the answer is no longer wanted; sent to the server and enforced here.
    pub deadline: Option<Instant>,
    /// W3C `traceparent` to send along.
    pub traceparent: Option<String>,
}

/// A client of one server of the Open Inference Protocol.
///
/// Dropping a returned future cancels the request, at the server too where the transport can say so.
pub trait Client: Send + Sync + 'static {
    /// Where the server is, for messages.
    fn peer(&self) -> &str;

    /// Sends a request and waits for its answer.
    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>>;

    /// Whether the server says it is ready.
    fn is_ready(&self) -> BoxFuture<'_, Result<bool, Error>>;

    /// Waits until what was cancelled keeps the server busy no more, as far as can be told: until it answers a question.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Whatever the answer.
            let _ = self.is_ready().await;
        })
    }

    /// Name, version, extensions.
    fn server_metadata(&self) -> BoxFuture<'_, Result<ServerMetadata, Error>>;

    /// A model's tensors.
    fn model_metadata<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelMetadata, Error>>;

    /// A model's configuration; `Unimplemented` where the server has no such endpoint.
    fn model_config<'a>(&'a self, model: &'a ModelRef) -> BoxFuture<'a, Result<ModelConfig, Error>>;

    /// The models of the server's repository; `Unimplemented` where the server has no such endpoint.
    fn repository_index(&self) -> BoxFuture<'_, Result<Vec<ModelIndex>, Error>>;

    /// Loads (or reloads) a model by name; `Unimplemented` where the server has no such endpoint.
    fn load_model<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Err(Error::Unimplemented { what: "loading models".into() }) })
    }

    /// Unloads a model by name; `Unimplemented` where the server has no such endpoint.
    fn unload_model<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Err(Error::Unimplemented { what: "unloading models".into() }) })
    }
}

/// A client of the server at `endpoint`. Nothing is sent yet: a server that is not there shows in the first request.
/// Must be called within a tokio runtime.
pub fn connect(endpoint: &Endpoint, config: &Config) -> Result<Arc<dyn Client>, Error> {
    let dialer = Dialer::new(endpoint.address.clone(), config);
    let http = || Http::new(dialer.clone(), config);
    let frames = || Ok::<_, Error>(Frames::new(http()?, config.clone()));
    Ok(match (endpoint.scheme, config.transport) {
        (Scheme::Grpc, _) => Arc::new(Grpc::new(&dialer, config)?),
        (Scheme::Frames, _) => Arc::new(frames()?),
        (Scheme::Http, Prefer::Http) => Arc::new(http()?),
        (Scheme::Http, Prefer::Auto) => Arc::new(Auto::new(http()?, frames()?)),
    })
}
