//! A client over frames: one connection, opened on demand and reopened after a failure.
//!
//! Endpoints other than inference use HTTP on the same port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

use bytes::Bytes;
use http::header;
use parking_lot::RwLock;
use parm_grants::Order;
use parm_protocol::client::{BoxFuture, CallContext, Client};
use parm_protocol::fleet::Watcher;

use super::http1::Upgraded;

use parm_protocol::{
    Error, InferRequest, InferResponse, ModelConfig, ModelIndex, ModelMetadata, ModelRef, ServerMetadata,
};

use super::{Config, Http, deadline, status};
use crate::frames::{Connection, GRANTS, Negotiated, PATH, PROTOCOL, Socket};

/// A client that sends requests as frames.
pub struct Frames {
    http: Http,
    config: Config,
    current: RwLock<Option<Arc<Connection>>>,
    /// The receiver of what the server says.
    watcher: RwLock<Option<Arc<dyn Watcher>>>,
    /// Number of connections so far.
    connections: AtomicU64,
    /// Held while connecting, so that concurrent requests open one connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Frames {
    /// A client that requests frames from `http`'s server.
    pub(super) fn new(http: Http, config: Config) -> Self {
        Self {
            http,
            config,
            current: RwLock::default(),
            watcher: RwLock::default(),
            connections: AtomicU64::new(0),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    async fn send(&self, request: InferRequest, context: CallContext) -> Result<InferResponse, Error> {
        // A connection may begin to drain between being chosen and being used: the next one is new.
        for _ in 0..2 {
            let connection = self.connection_by(context.deadline).await?;
            match connection.begin() {
                Ok(call) => return call.infer(&request, &context).await,
                Err(error) if connection.is_open() => return Err(error),
                Err(_) => {}
            }
        }
        self.connection_by(context.deadline).await?.infer(&request, &context).await
    }

    /// A connection, or a timeout at the deadline. The call that follows enforces the deadline itself.
    async fn connection_by(&self, deadline: Option<Instant>) -> Result<Arc<Connection>, Error> {
        match self.open() {
            Some(open) => Ok(open),
            None => deadline::within(deadline, self.connection()).await,
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, Error> {
        let _alone = self.connecting.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let watcher = self.watcher.read().clone();
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let (limits, socket, already_read) = self.negotiate(watcher.is_some()).await?;
        // What the server says at once may be answered at once, on this connection.
        let mut current = self.current.write();
        let connection = Arc::new(Connection::watched(
            self.peer().into(),
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

    async fn negotiate(&self, asks: bool) -> Result<(Negotiated, Socket, Bytes), Error> {
        let mut ask =
            self.http.get(PATH).header(header::CONNECTION, "upgrade").header(header::UPGRADE, PROTOCOL);
        if asks {
            ask = ask.header(GRANTS, "1");
        }
        let negotiation = self.http.upgrade(ask);
        let limit = self.config.connect_timeout;
        let upgrade = tokio::time::timeout(limit, negotiation).await.unwrap_or_else(|_| {
            let message = format!("timed out negotiating frames after {limit:?}");
            Err(Error::Transport { peer: self.peer().into(), message })
        })?;
        match upgrade {
            Ok(Upgraded { headers, socket, already_read }) => {
                Ok((Negotiated::from_headers(&headers), socket, already_read))
            }
            Err((status, body)) => Err(match status.as_u16() {
                404 | 405 | 426 | 501 => Error::Unimplemented { what: PROTOCOL.into() },
                _ => status::from_http(status, false, &body, "the upgrade to frames"),
            }),
        }
    }
}

impl Client for Frames {
    fn infer(
        &self,
        request: InferRequest,
        context: CallContext,
    ) -> BoxFuture<'_, Result<InferResponse, Error>> {
        Box::pin(self.send(request, context))
    }

    fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.write() = Some(watcher);
    }

    fn tell(&self, order: Order) {
        if let Some(connection) = self.open() {
            connection.tell(order);
        }
    }

    other_calls_over_http!();
}
