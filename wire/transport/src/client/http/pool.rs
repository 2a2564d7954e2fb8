//! A limited number of keep-alive connections to one server.

use http::Request;
use parking_lot::Mutex;
use parm_protocol::Error;
use parm_protocol::rest::Encoded;
use tokio::sync::Semaphore;

use super::connection::{Answer, Failure, HttpConnection, Upgrade};
use crate::client::Config;
use crate::client::dial::Dialer;

/// Most requests other than predictions in progress: a health check, and a few about models.
const QUESTIONS: usize = 8;

pub(super) struct Pool {
    dialer: Dialer,
    /// The most recently used last: the rest may grow old and be closed by the server.
    idle: Mutex<Vec<HttpConnection>>,
    permits: Semaphore,
    /// For health checks and metadata: a busy server is not a failed one, and must be able to report so.
    questions: Semaphore,
    limit: usize,
    max_connections: u32,
}

impl Pool {
    pub(super) fn new(dialer: Dialer, config: &Config) -> Self {
        Self {
            dialer,
            idle: Mutex::default(),
            permits: Semaphore::new(config.max_connections.get() as usize),
            questions: Semaphore::new(QUESTIONS),
            limit: config.max_body_bytes.get(),
            max_connections: config.max_connections.get(),
        }
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Sends a request and waits for its response.
    pub(super) async fn exchange(&self, request: &Request<Encoded>) -> Result<Answer, Error> {
        let _permit = self.permits.try_acquire().map_err(|_| Error::Overloaded {
            message: format!(
                "{} requests are in progress at {}, its limit",
                self.max_connections,
                self.dialer.peer()
            ),
            retry_after: std::time::Duration::from_secs(1),
        })?;
        self.converse(request).await
    }

    /// [`exchange`](Self::exchange) outside of the limit on predictions: waits for requests of the same kind only.
    pub(super) async fn ask(&self, request: &Request<Encoded>) -> Result<Answer, Error> {
        // The semaphore is never closed.
        let _permit = self.questions.acquire().await;
        self.converse(request).await
    }

    /// A server may close an idle connection at the very moment it is used again: then a new connection gets the
    /// request, once.
    async fn converse(&self, request: &Request<Encoded>) -> Result<Answer, Error> {
        if let Some(mut connection) = self.take_idle() {
            match connection.exchange(request.clone(), self.limit).await {
                Err(Failure::NoAnswer(_)) => {}
                outcome => return self.conclude(connection, outcome),
            }
        }
        let mut connection = self.open().await?;
        let outcome = connection.exchange(request.clone(), self.limit).await;
        self.conclude(connection, outcome)
    }

    pub(super) async fn upgrade(&self, request: Request<Encoded>) -> Result<Upgrade, Error> {
        self.open().await?.upgrade(request, self.limit).await.map_err(|failure| self.explain(failure))
    }

    fn take_idle(&self) -> Option<HttpConnection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    async fn open(&self) -> Result<HttpConnection, Error> {
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

    fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::NoAnswer(message) | Failure::Broken(message) => self.dialer.transport(message),
            Failure::TooLarge => Error::Remote {
                code: parm_protocol::Code::TooLarge,
                message: format!(
                    "the response has more than {} bytes: raise server.max_body_bytes",
                    self.limit
                ),
            },
        }
    }
}
