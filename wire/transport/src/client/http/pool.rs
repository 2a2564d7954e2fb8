//! A limited number of keep-alive connections to one server.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use parm_protocol::Error;
use parm_protocol::rest::Encoded;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::{Answer, Failure, HttpConnection, Upgrade};
use crate::client::Config;
use crate::client::dial::Dialer;

/// Most requests other than predictions in progress: a health check, and a few about models.
const QUESTIONS: usize = 8;

/// Most new connections for one request. A server closes a connection on which nothing comes for some seconds, as from a process
/// that gets no time to write. The request was not sent then, and another connection may carry it.
const OPENED: usize = 3;

pub(in crate::client) struct Pool {
    dialer: Dialer,
    /// The most recently used last: the rest may grow old and be closed by the server.
    idle: Mutex<Vec<HttpConnection>>,
    permits: Arc<Semaphore>,
    /// For health checks and metadata: a busy server is not a failed one, and must be able to report so.
    questions: Semaphore,
    limit: usize,
    max_connections: u32,
}

impl Pool {
    pub(in crate::client) fn new(dialer: Dialer, config: &Config) -> Self {
        Self {
            dialer,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(config.max_connections.get() as usize)),
            questions: Semaphore::new(QUESTIONS),
            limit: config.max_body_bytes.get(),
            max_connections: config.max_connections.get(),
        }
    }

    pub(in crate::client) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Sends a request and waits for its response. One that runs `once` is not sent again after a server may have read it.
    pub(super) async fn exchange(&self, request: &Request<Encoded>, once: bool) -> Result<Answer, Error> {
        let _permit = self.permits.try_acquire().map_err(|_| self.overloaded())?;
        self.converse(request, once).await
    }

    /// [`exchange`](Self::exchange) outside of the limit on predictions: waits for requests of the same kind only.
    pub(in crate::client) async fn ask(&self, request: &Request<Encoded>) -> Result<Answer, Error> {
        // The semaphore is never closed.
        let _permit = self.questions.acquire().await;
        self.converse(request, false).await
    }

    /// A server may close an idle connection at the very moment it is used again: then a new connection gets the
    /// request, once more. A server that ends after it has read a request looks the same.
    async fn converse(&self, request: &Request<Encoded>, once: bool) -> Result<Answer, Error> {
        if let Some(mut connection) = self.take_idle() {
            match connection.exchange(request.clone(), self.limit).await {
                Err(Failure::Unsent(_)) => {}
                Err(Failure::NoAnswer(_)) if !once => {}
                outcome => return self.conclude(connection, outcome),
            }
        }
        let (mut connection, mut response) = self.send(request).await?;
        let outcome = connection.answer(&mut response, self.limit).await;
        self.conclude(connection, outcome)
    }

    /// Sends a request on a new connection and waits for the head of its response.
    pub(super) async fn send(
        &self,
        request: &Request<Encoded>,
    ) -> Result<(HttpConnection, Response<Incoming>), Error> {
        let mut left = OPENED;
        loop {
            left -= 1;
            let mut connection = self.open().await?;
            match connection.head(request.clone()).await {
                Ok(response) => return Ok((connection, response)),
                Err(Failure::Unsent(_)) if left > 0 => {}
                Err(failure) => return Err(self.explain(failure)),
            }
        }
    }

    /// The error at the limit.
    pub(in crate::client) fn overloaded(&self) -> Error {
        let (most, peer) = (self.max_connections, self.dialer.peer());
        let message = format!("{most} requests are in progress at {peer}, its limit");
        Error::Overloaded { message, retry_after: std::time::Duration::from_secs(1) }
    }

    /// A place for a request that may be longer than one exchange; `None` at the limit.
    pub(in crate::client) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// A connection for one request: an idle one, unless `fresh`.
    pub(in crate::client) async fn connection(&self, fresh: bool) -> Result<HttpConnection, Error> {
        let idle = if fresh { None } else { self.take_idle() };
        match idle {
            Some(idle) => Ok(idle),
            None => self.open().await,
        }
    }

    /// Takes back a connection whose request is answered.
    pub(in crate::client) fn put_back(&self, mut connection: HttpConnection) {
        if connection.is_reusable() {
            self.idle.lock().push(connection);
        }
    }

    pub(super) async fn upgrade(&self, request: Request<Encoded>) -> Result<Upgrade, Error> {
        self.open().await?.upgrade(request, self.limit).await.map_err(|failure| self.explain(failure))
    }

    pub(super) fn take_idle(&self) -> Option<HttpConnection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    pub(super) async fn open(&self) -> Result<HttpConnection, Error> {
        let socket = self.dialer.dial().await?;
        HttpConnection::open(socket).await.map_err(|error| self.dialer.transport(error.to_string()))
    }

    fn conclude(
        &self,
        mut connection: HttpConnection,
        outcome: Result<Answer, Failure>,
    ) -> Result<Answer, Error> {
        let answer = outcome.map_err(|failure| self.explain(failure))?;
        if connection.is_reusable() {
            self.idle.lock().push(connection);
        }
        Ok(answer)
    }

    pub(in crate::client) fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Unsent(message) | Failure::NoAnswer(message) | Failure::Broken(message) => {
                self.dialer.transport(message)
            }
            Failure::TooLarge => Error::AnswerTooLarge { limit: self.limit },
        }
    }
}
