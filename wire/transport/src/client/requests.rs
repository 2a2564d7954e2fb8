//! Whole exchanges with one server, with the key and within the limits of a client's configuration.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request};
use parm_protocol::Error;
use parm_protocol::rest::Encoded;
use tokio::time::Instant;

use super::pool::{Answer, Failure, Payload, Pool};
use super::{Config, Token};

/// A pool, and what each request to its server has.
pub(super) struct Requests {
    pub(super) pool: Pool,
    pub(super) authorization: Option<HeaderValue>,
    /// Largest body of an answer.
    limit: usize,
    control_timeout: Duration,
    load_timeout: Duration,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Requests {
    pub(super) fn new(pool: Pool, config: &Config) -> Result<Self, Error> {
        let authorization = config.token.as_ref().map(Token::header).transpose().map_err(Error::malformed)?;
        let limit = config.max_body_bytes.get();
        let (control_timeout, load_timeout) = (config.control_timeout, config.load_timeout);
        Ok(Self { pool, authorization, limit, control_timeout, load_timeout })
    }

    pub(super) fn peer(&self) -> &str {
        self.pool.dialer().peer()
    }

    pub(super) fn request(&self, method: Method, path: &str) -> request::Builder {
        let builder = Request::builder().method(method).uri(path);
        match &self.authorization {
            Some(value) => builder.header(header::AUTHORIZATION, value),
            None => builder,
        }
    }

    /// Sends a request for a prediction, and reads the whole answer.
    pub(super) async fn infer(&self, request: Request<Payload>, once: bool) -> Result<Reply, Error> {
        self.whole(self.pool.send(&request, !once, self.pool.permit()?).await).await
    }

    /// Asks the server something that may be asked again.
    pub(super) async fn ask(&self, request: Request<Payload>) -> Result<Reply, Error> {
        self.control(async { self.whole(self.pool.ask(&request).await).await }).await
    }

    pub(super) async fn order(&self, request: Request<Payload>, repeatable: bool) -> Result<Reply, Error> {
        let permit = self.pool.permit()?;
        let ordered = async { self.whole(self.pool.send(&request, repeatable, permit).await).await };
        self.within(self.load_timeout, ordered).await
    }

    /// The result of a question, or an error if it takes too long.
    pub(super) async fn control<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.within(self.control_timeout, asked).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let late = |_| self.pool.dialer().transport(format!("timed out after {limit:?}"));
        tokio::time::timeout(limit, answer).await.map_err(late)?
    }

    pub(super) async fn whole(&self, outcome: Result<Response<Answer>, Failure>) -> Result<Reply, Error> {
        let read = async {
            let (head, answer) = outcome?.into_parts();
            // A message of gRPC has the largest size without its frame.
            let around = if self.pool.is_http2() { crate::grpc::PREFIX } else { 0 };
            let (body, trailers) = answer.collect(self.limit.saturating_add(around)).await?;
            Ok::<_, Failure>(Reply { status: head.status, headers: head.headers, body, trailers })
        };
        read.await.map_err(|failure| self.error(failure))
    }

    pub(super) fn error(&self, failure: Failure) -> Error {
        failure.at(self.pool.dialer(), self.limit)
    }
}

pub(super) fn built(request: request::Builder, body: Encoded) -> Result<Request<Payload>, Error> {
    request
        .body(Payload::Whole(body))
        .map_err(|error| Error::Malformed { message: format!("cannot build an HTTP request: {error}") })
}

/// The future's result, or a timeout at the deadline, which the client enforces independently of the server.
pub(crate) async fn by_deadline<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(deadline) = deadline else { return future.await };
    let started = Instant::now();
    if deadline <= started {
        return Err(Error::DeadlineExceeded { waited: Duration::ZERO });
    }
    let late = |_| Error::DeadlineExceeded { waited: started.elapsed() };
    tokio::time::timeout_at(deadline, future).await.map_err(late)?
}
