//! A client that detects the server's transport: frames if `GET /v2` lists them, otherwise HTTP, with JSON tensors unless
//! binary ones are listed. A server without `GET /v2` gets JSON too: every server of the protocol reads it.

use std::sync::Arc;
use tokio::time::Instant;

use parking_lot::Mutex;
use parm_grants::Order;

use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::fleet::Watcher;
use parm_protocol::rest::request::Form;
use parm_protocol::{
    Code, Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef,
    ServerMetadata,
};

use super::{Frames, Http, deadline};
use crate::frames::EXTENSION;

/// Asks when the first request is sent: a server may start later than its clients.
pub(super) struct Auto {
    http: Http,
    frames: Frames,
    choice: Mutex<Option<Choice>>,
    /// Held while asking, so that concurrent first requests ask once.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
enum Choice {
    Http(Form),
    Frames,
}

impl Auto {
    pub(super) fn new(http: Http, frames: Frames) -> Self {
        Self { http, frames, choice: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    async fn send(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        match self.choose_by(context.deadline).await? {
            Choice::Http(form) => self.http.infer_as(form, request, context).await,
            Choice::Frames => match self.frames.infer(request.clone(), context.clone()).await {
                Err(Error::Unimplemented { what }) => self.send_anew(request, context, what).await,
                outcome => outcome,
            },
        }
    }

    /// Sends a request that met no frames: another server replaced the one that offered them, and may read other
    /// tensors. It never saw the request.
    async fn send_anew(
        &self,
        request: InferRequest,
        context: CallContext,
        what: String,
    ) -> Result<InferResponse, Error> {
        *self.choice.lock() = None;
        match self.choose_by(context.deadline).await? {
            Choice::Http(form) => self.http.infer_as(form, request, context).await,
            Choice::Frames => Err(Error::Unimplemented { what }),
        }
    }

    /// The choice, or a timeout at the deadline. The request that follows enforces the deadline itself.
    async fn choose_by(&self, deadline: Option<Instant>) -> Result<Choice, Error> {
        let choice = *self.choice.lock();
        match choice {
            Some(choice) => Ok(choice),
            None => deadline::within(deadline, self.choose()).await,
        }
    }

    async fn choose(&self) -> Result<Choice, Error> {
        let _alone = self.asking.lock().await;
        if let Some(choice) = *self.choice.lock() {
            return Ok(choice);
        }
        let extensions = match self.http.server_metadata().await {
            Ok(metadata) => metadata.extensions,
            Err(error) if is_missing(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let lists = |wanted: &str| extensions.iter().any(|extension| extension == wanted);
        let choice = match (lists(EXTENSION), lists(BINARY)) {
            (true, _) => Choice::Frames,
            (false, true) => Choice::Http(self.http.form()),
            (false, false) => Choice::Http(Form::Json),
        };
        *self.choice.lock() = Some(choice);
        Ok(choice)
    }
}

/// The protocol's name of binary tensors.
const BINARY: &str = "binary_tensor_data";

/// Whether the server has no `GET /v2`, so that asking again would not help.
fn is_missing(error: &Error) -> bool {
    matches!(error.code(), Code::Unimplemented | Code::NotFound | Code::InvalidArgument)
}

impl Client for Auto {
    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(self.send(request, context))
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.frames.watch(watcher);
    }

    fn tell(&self, order: Order) {
        self.frames.tell(order);
    }

    other_calls_over_http!();
}
