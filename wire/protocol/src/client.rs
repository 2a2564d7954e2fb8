//! What a client of a server must be able to do, whatever carries it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parm_tokens::{Order, Token};
use tokio::time::Instant;

use crate::fleet::{Watcher, Wish};
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
    /// The server's token that the request uses.
    pub token: Option<Token>,
    /// The share of the server's instances that the request is charged to, if not its model's own. Servers that know no
    /// shares are not told.
    pub share: Option<Arc<str>>,
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

    /// Has somebody told of tokens that the server gives; nothing is told where it gives none.
    fn watch(&self, _watcher: Arc<dyn Watcher>) {}

    /// Tells the server what is wished of its tokens. It may get lost.
    fn tell(&self, _order: Order<Wish>) {}

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
