//! Connections to one server, for the requests of every client: of HTTP/1.1 with one request each, or of HTTP/2.
//!
//! A server may close a connection at the very moment it is used again. A request that was certainly not read gets another
//! connection. One that may have been read gets another only if it may run twice, and only if the connection had worked
//! before: a server that ends after it has read a request looks the same.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use parking_lot::Mutex;
use parm_protocol::rest::Encoded;
use parm_protocol::{Error, ReaderHandle, RequestStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Config;
use super::dial::Dialer;
use super::http1::{HEADERS, HttpConnection, Upgraded};
use super::http2::{Http2, OpenStream};
use crate::begun::Begun;

/// Most requests other than predictions in progress: a health check, and a few about models.
const QUESTIONS: usize = 8;

/// Most connections for one request: a kept one, and new ones whose server closes them before the request was sent, as on a
/// process that gets no time to write.
const TRIES: u32 = 4;

/// A limited number of requests at a time at one server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    dialer: Dialer,
    lines: Lines,
    permits: Arc<Semaphore>,
    /// For health checks and metadata: a busy server is not a failed one, and must be able to report so.
    questions: Arc<Semaphore>,
    most: usize,
    repeated: AtomicU64,
}

enum Lines {
    Http1 {
        host: HeaderValue,
        /// The most recently used last: the rest may grow old and be closed by the server.
        #[expect(clippy::vec_box, reason = "a connection goes to an answer and back without being copied")]
        idle: Mutex<Vec<Box<HttpConnection>>>,
    },
    Http2(Box<Http2>),
}

#[derive(Clone)]
pub(super) enum Payload {
    Whole(Encoded),
    /// While the client sends it, over HTTP/2.
    Streamed(Arc<RequestStream>),
}

#[derive(Debug)]
pub(super) enum Failure {
    NotConnected(Error),
    Unsent(String),
    /// No byte of a response arrived.
    NoAnswer(String),
    Broken(String),
    TooLarge,
}

impl Failure {
    /// The error of a request to this server, with the limit on answers.
    pub(super) fn at(self, dialer: &Dialer, limit: usize) -> Error {
        match self {
            Self::NotConnected(error) => error,
            Self::TooLarge => Error::AnswerTooLarge { limit },
            other => dialer.transport(other.message()),
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::NotConnected(Error::Transport { message, .. }) => message,
            // It did not connect in time.
            Self::NotConnected(other) => other.to_string(),
            Self::Unsent(message) | Self::NoAnswer(message) | Self::Broken(message) => message,
            Self::TooLarge => "the answer is too large".into(),
        }
    }
}

/// A place for a request, until its answer has ended.
pub(super) type Permit = OwnedSemaphorePermit;

/// The way to a request's connection.
enum Line {
    Http1(Box<HttpConnection>),
    Http2(OpenStream),
}

impl Pool {
    /// Connections of HTTP/1.1, each with one request at a time.
    pub(super) fn http1(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let message = "the host has characters that a header cannot contain";
        let host = HeaderValue::from_str(dialer.authority()).map_err(|_| Error::malformed(message))?;
        let lines = Lines::Http1 { host, idle: Mutex::default() };
        Ok(Self::new(dialer, lines, config.max_connections.get() as usize))
    }

    /// Shared connections of HTTP/2, without asking whether the server speaks it. A client that reads slowly gets `window`
    /// bytes of an answer ahead.
    pub(super) fn http2(dialer: Dialer, window: u32, most: usize) -> Result<Self, Error> {
        let lines = Lines::Http2(Box::new(Http2::new(&dialer, window)?));
        Ok(Self::new(dialer, lines, most))
    }

    fn new(dialer: Dialer, lines: Lines, most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        let [permits, questions] = [most, QUESTIONS].map(|places| Arc::new(Semaphore::new(places)));
        Self(Arc::new(Shared { dialer, lines, permits, questions, most, repeated: AtomicU64::new(0) }))
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.0.dialer
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.0.lines, Lines::Http2(_))
    }

    /// How many requests were sent twice, because their kept connection ended without an answer. A server may have run both.
    pub(super) fn repeated(&self) -> u64 {
        self.0.repeated.load(Ordering::Relaxed)
    }

    /// A place for a request.
    pub(super) fn permit(&self) -> Result<Permit, Error> {
        let (most, peer) = (self.0.most, self.dialer().peer());
        self.0
            .permits
            .clone()
            .try_acquire_owned()
            .map_err(|_| Error::overloaded(format!("{most} requests are in progress at {peer}, its limit")))
    }

    /// A place outside of the limit on predictions: waits for requests of the same kind only.
    pub(super) async fn question(&self) -> Permit {
        self.0.questions.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Sends a request and waits for the head of its response. One that is not `repeatable` is not sent again after a server may
    /// have read it.
    pub(super) async fn send(
        &self,
        request: &Request<Payload>,
        repeatable: bool,
        permit: Permit,
    ) -> Result<Response<Answer>, Failure> {
        self.converse(request, repeatable, permit, false).await
    }

    /// Asks the server something that may be asked again. A connection on which no answer comes before this is dropped is given up.
    pub(super) async fn ask(&self, request: &Request<Payload>) -> Result<Response<Answer>, Failure> {
        self.converse(request, true, self.question().await, true).await
    }

    async fn converse(
        &self,
        request: &Request<Payload>,
        repeatable: bool,
        permit: Permit,
        question: bool,
    ) -> Result<Response<Answer>, Failure> {
        let (mut left, mut may_repeat) = (TRIES, repeatable);
        loop {
            left -= 1;
            let (outcome, was_used) = self.attempt(request, left + 1 < TRIES, question).await?;
            match outcome {
                Ok((response, line)) => {
                    return Ok(response.map(|body| Answer {
                        body,
                        line: Some(line),
                        pool: self.clone(),
                        _permit: permit,
                    }));
                }
                Err(Failure::Unsent(_)) if left > 0 => {}
                Err(Failure::NoAnswer(_)) if left > 0 && was_used && may_repeat => {
                    may_repeat = question;
                    self.0.repeated.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Sends a request on one connection, which is new if it is `fresh`. The connection's own failure comes first.
    async fn attempt(
        &self,
        request: &Request<Payload>,
        fresh: bool,
        question: bool,
    ) -> Result<(Result<(Response<Incoming>, Line), Failure>, bool), Failure> {
        match &self.0.lines {
            Lines::Http1 { .. } => {
                let mut connection = match self.take_idle().filter(|_| !fresh) {
                    Some(idle) => idle,
                    None => Box::new(self.open().await?),
                };
                let was_used = connection.used;
                let outcome = connection.head(self.over_http1(request)?).await;
                Ok((outcome.map(|response| (response, Line::Http1(connection))), was_used))
            }
            Lines::Http2(shared) => {
                let (connection, stream) = shared.connection(self.dialer()).await?;
                let was_used = connection.is_used();
                let outcome = shared.head(&connection, stream, request, question).await;
                Ok((outcome.map(|(response, stream)| (response, Line::Http2(stream))), was_used))
            }
        }
    }

    /// Asks for another protocol on a connection of its own.
    pub(super) async fn upgrade(
        &self,
        request: &Request<Payload>,
    ) -> Result<Result<Upgraded, Response<Answer>>, Failure> {
        let (response, connection) = match self.open().await?.upgrade(self.over_http1(request)?).await? {
            Ok(upgraded) => return Ok(Ok(upgraded)),
            Err(refusal) => refusal,
        };
        let (line, permit) = (Some(Line::Http1(Box::new(connection))), self.question().await);
        Ok(Err(response.map(|body| Answer { body, line, pool: self.clone(), _permit: permit })))
    }

    fn over_http1(&self, request: &Request<Payload>) -> Result<Request<Encoded>, Failure> {
        let Payload::Whole(body) = request.body() else {
            let what = "a call whose client still sends, over HTTP/1.1";
            return Err(Failure::NotConnected(Error::Unimplemented { what: what.into() }));
        };
        let mut request = with_body(request, body.clone());
        if let Lines::Http1 { host, .. } = &self.0.lines {
            request.headers_mut().insert(HOST, host.clone());
        }
        Ok(request)
    }

    fn take_idle(&self) -> Option<Box<HttpConnection>> {
        let Lines::Http1 { idle, .. } = &self.0.lines else { return None };
        loop {
            let mut connection = idle.lock().pop()?;
            if connection.is_alive() {
                return Some(connection);
            }
        }
    }

    async fn open(&self) -> Result<HttpConnection, Failure> {
        let socket = self.dialer().dial().await.map_err(Failure::NotConnected)?;
        HttpConnection::open(socket).await.map_err(|error| Failure::Unsent(describe(&error)))
    }

    /// Takes back a connection whose request is answered.
    fn put_back(&self, mut connection: Box<HttpConnection>) {
        connection.used = true;
        if let Lines::Http1 { idle, .. } = &self.0.lines
            && connection.is_reusable()
        {
            idle.lock().push(connection);
        }
    }
}

/// The body of an answer while it arrives. Dropping it cancels the request: it closes a connection of HTTP/1.1, and resets
/// the stream of one of HTTP/2.
pub(super) struct Answer {
    body: Incoming,
    /// The connection, until the answer has ended.
    line: Option<Line>,
    pool: Pool,
    _permit: Permit,
}

impl Answer {
    pub(super) fn peer(&self) -> &str {
        self.pool.dialer().peer()
    }

    /// The request, if its client may send more.
    pub(super) fn asking(&self) -> Option<&ReaderHandle> {
        match &self.line {
            Some(Line::Http2(stream)) => stream.asking.as_ref(),
            _ => None,
        }
    }

    /// Whether nothing follows, as far as is known.
    pub(super) fn is_end(&self) -> bool {
        self.line.is_none() || self.body.is_end_stream()
    }

    pub(super) async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, Failure> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// The next data, or the trailers of HTTP/2; `None` after the regular end, when a connection of HTTP/1.1 is free again.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        let frame = match &mut self.line {
            None => return Poll::Ready(Ok(None)),
            Some(Line::Http1(connection)) => connection.poll_frame(&mut self.body, cx),
            Some(Line::Http2(stream)) => {
                let frame = Pin::new(&mut self.body).poll_frame(cx);
                if matches!(frame, Poll::Pending | Poll::Ready(Some(Err(_)))) && stream.is_lost(cx) {
                    return Poll::Ready(Err(OpenStream::lost()));
                }
                frame.map(|frame| frame.transpose().map_err(|error| Failure::Broken(describe(&error))))
            }
        };
        match frame {
            Poll::Ready(Ok(None)) => self.end(),
            Poll::Ready(Err(_)) => self.line = None,
            _ => {}
        }
        frame
    }

    /// Makes the connection free for another request, after the end of the answer.
    fn end(&mut self) {
        if let Some(Line::Http1(connection)) = self.line.take() {
            self.pool.put_back(connection);
        }
    }

    /// Reads all of it, up to a limit, and its trailers. A body in one piece is not copied.
    pub(super) async fn collect(mut self, limit: usize) -> Result<(Bytes, Option<HeaderMap>), Failure> {
        let expected = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if expected > limit {
            return Err(Failure::TooLarge);
        }
        let (mut begun, mut trailers) = (Begun::default(), None);
        while let Some(frame) = self.frame().await? {
            match frame.into_data() {
                Ok(bytes) => begun.add(bytes, expected),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if begun.bytes().len() > limit {
                return Err(Failure::TooLarge);
            }
        }
        Ok((begun.freeze(), trailers))
    }
}

/// A request with another body.
pub(super) fn with_body<B>(request: &Request<Payload>, body: B) -> Request<B> {
    let mut other = Request::new(body);
    *other.method_mut() = request.method().clone();
    *other.uri_mut() = request.uri().clone();
    *other.headers_mut() = request.headers().clone();
    other
}

/// hyper's text, with the cause and the remedy.
pub(super) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None if error.is_parse_too_large() => format!("{error}: at most {HEADERS} headers are accepted"),
        None => error.to_string(),
    }
}
