//! Predictions over frames, to a server whose other endpoints use HTTP on the same port: one connection, opened on demand and
//! reopened after a failure.
//!
//! Unless the address requires frames, the server's transport is detected: frames if `GET /v2` lists them, otherwise HTTP, with
//! JSON tensors unless binary ones are listed. A server without `GET /v2` gets JSON too: every server of the protocol reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header;
use parking_lot::{Mutex, RwLock};
use parm_grants::Order;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::fleet::Watcher;
use parm_protocol::rest::request::Form;
use parm_protocol::{Code, Error, InferRequest, InferResponse};
use tokio::time::Instant;

use super::http::Http;
use super::http1::Upgraded;
use super::requests::by_deadline;
use super::{Config, status};
use crate::frames::{Connection, EXTENSION, Negotiated, PATH, PROTOCOL, Socket};

const BINARY: &str = "binary_tensor_data";

pub(super) struct Frames {
    config: Config,
    /// Whether the address requires frames.
    required: bool,
    /// The detected transport. The server is asked when the first request is sent: it may start later than its clients.
    choice: Mutex<Option<Choice>>,
    current: RwLock<Option<Arc<Connection>>>,
    /// The receiver of what the server says.
    watcher: RwLock<Option<Arc<dyn Watcher>>>,
    connections: AtomicU64,
    /// Held while asking or connecting, so that concurrent requests do so once.
    alone: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
enum Choice {
    Http(Form),
    Frames,
}

impl Frames {
    pub(super) fn new(config: &Config, required: bool) -> Self {
        Self {
            config: config.clone(),
            required,
            choice: Mutex::default(),
            current: RwLock::default(),
            watcher: RwLock::default(),
            connections: AtomicU64::new(0),
            alone: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.write() = Some(watcher);
    }

    pub(super) fn tell(&self, order: Order) {
        if let Some(connection) = self.open() {
            connection.tell(order);
        }
    }

    pub(super) async fn infer(
        &self,
        http: &Http,
        request: InferRequest,
        context: CallContext,
    ) -> Result<InferResponse, Error> {
        if self.required {
            return self.send(http, &request, &context).await;
        }
        let what = match self.choose_by(http, context.deadline).await? {
            Choice::Http(form) => return http.infer_as(form, request, context).await,
            Choice::Frames => match self.send(http, &request, &context).await {
                Err(Error::Unimplemented { what }) => what,
                outcome => return outcome,
            },
        };
        // Another server replaced the one that offered frames, and may read other tensors. It never saw the request.
        *self.choice.lock() = None;
        match self.choose_by(http, context.deadline).await? {
            Choice::Http(form) => http.infer_as(form, request, context).await,
            Choice::Frames => Err(Error::Unimplemented { what }),
        }
    }

    /// The choice, or a timeout at the deadline. The request that follows enforces the deadline itself.
    async fn choose_by(&self, http: &Http, deadline: Option<Instant>) -> Result<Choice, Error> {
        let choice = *self.choice.lock();
        match choice {
            Some(choice) => Ok(choice),
            None => by_deadline(deadline, self.choose(http)).await,
        }
    }

    async fn choose(&self, http: &Http) -> Result<Choice, Error> {
        let _alone = self.alone.lock().await;
        if let Some(choice) = *self.choice.lock() {
            return Ok(choice);
        }
        let extensions = match http.server_metadata().await {
            Ok(metadata) => metadata.extensions,
            // Asking again would not help.
            Err(error) if is_missing(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let lists = |wanted: &str| extensions.iter().any(|extension| extension == wanted);
        let choice = match (lists(EXTENSION), lists(BINARY)) {
            (true, _) => Choice::Frames,
            (false, true) => Choice::Http(http.form()),
            (false, false) => Choice::Http(Form::Json),
        };
        *self.choice.lock() = Some(choice);
        Ok(choice)
    }

    async fn send(
        &self,
        http: &Http,
        request: &InferRequest,
        context: &CallContext,
    ) -> Result<InferResponse, Error> {
        // A connection may begin to drain between being chosen and being used: the next one is new.
        for _ in 0..2 {
            let connection = self.connection_by(http, context.deadline).await?;
            match connection.begin() {
                Ok(call) => return call.infer(request, context).await,
                Err(error) if connection.is_open() => return Err(error),
                Err(_) => {}
            }
        }
        self.connection_by(http, context.deadline).await?.infer(request, context).await
    }

    /// A connection, or a timeout at the deadline. The call that follows enforces the deadline itself.
    async fn connection_by(&self, http: &Http, deadline: Option<Instant>) -> Result<Arc<Connection>, Error> {
        match self.open() {
            Some(open) => Ok(open),
            None => by_deadline(deadline, self.connection(http)).await,
        }
    }

    async fn connection(&self, http: &Http) -> Result<Arc<Connection>, Error> {
        let _alone = self.alone.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let watcher = self.watcher.read().clone();
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let (limits, socket, already_read) = self.negotiate(http, watcher.is_some()).await?;
        // What the server says at once may be answered at once, on this connection.
        let mut current = self.current.write();
        let connection = Arc::new(Connection::new(
            http.peer().into(),
            socket,
            &already_read,
            limits,
            &self.config.frames,
            watcher.map(|watcher| (number, watcher)),
        ));
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn open(&self) -> Option<Arc<Connection>> {
        self.current.read().as_ref().filter(|connection| connection.is_open()).cloned()
    }

    async fn negotiate(&self, http: &Http, grants: bool) -> Result<(Negotiated, Socket, Bytes), Error> {
        let (name, terms) = Negotiated { grants, ..Negotiated::default() }.header();
        let ask = http.get(PATH).header(header::CONNECTION, "upgrade").header(header::UPGRADE, PROTOCOL);
        let ask = ask.header(name, terms);
        let limit = self.config.connect_timeout;
        let upgrade = tokio::time::timeout(limit, http.upgrade(ask)).await.unwrap_or_else(|_| {
            let message = format!("timed out negotiating frames after {limit:?}");
            Err(Error::Transport { peer: http.peer().into(), message })
        })?;
        match upgrade {
            Ok(Upgraded { headers, socket, already_read }) => {
                Ok((Negotiated::from_headers(&headers), socket, already_read))
            }
            Err(refusal) => Err(match refusal.status.as_u16() {
                404 | 405 | 426 | 501 => Error::Unimplemented { what: PROTOCOL.into() },
                _ => status::from_http(refusal.status, false, &refusal.body, "the upgrade to frames"),
            }),
        }
    }
}

/// Whether the server has no `GET /v2`.
fn is_missing(error: &Error) -> bool {
    matches!(error.code(), Code::Unimplemented | Code::NotFound | Code::InvalidArgument)
}
