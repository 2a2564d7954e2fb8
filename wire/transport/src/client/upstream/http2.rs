//! One HTTP/2 connection to a server, shared by all of its requests and dialled again after it breaks.
//!
//! Problem: one slow reader must not hold back the other requests of its connection, and a connection that went silent must
//! be replaced.
//!
//! Choice: the window of the connection is the sum of the windows of all requests that may be in progress, so a full stream
//! leaves room for the others. A health check that gets no answer in time gives the connection up.
//!
//! Rejected: pings of HTTP/2, because gRPC servers close the connections of clients that ping often during a long call.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::TE;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use parm_protocol::{Error, is_grpc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::Config;
use crate::client::dial::Dialer;
use crate::client::http::connection::{Failure, describe};
use crate::client::status;

/// Bytes of one answer that the server may send before the client has read them.
const WINDOW: u32 = 256 << 10;

/// The largest window of a connection that HTTP/2 knows.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// A shared connection to one server.
pub(super) struct Http2 {
    dialer: Dialer,
    scheme: Scheme,
    authority: Authority,
    builder: Builder<TokioExecutor>,
    kept: Mutex<Option<SharedConnection>>,
    /// Held while dialling, so that requests that arrive together dial once.
    dialling: tokio::sync::Mutex<()>,
    permits: Arc<Semaphore>,
}

/// A connection, whose task ends after the last request when no handle is left.
#[derive(Clone)]
struct SharedConnection {
    sender: SendRequest<Sent>,
    /// Whether a request was answered here already.
    used: Arc<AtomicBool>,
}

/// A request without its server.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Http2 {
    /// A connection through `dialer`, for as many requests at a time as `config` allows. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let authority = dialer.authority().parse().map_err(|error| Error::Malformed {
            message: format!("'{}' is not a host: {error}", dialer.peer()),
        })?;
        let scheme = if dialer.scheme() == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let most = config.max_connections.get();
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW.saturating_mul(most).min(LARGEST_WINDOW));
        let permits = Arc::new(Semaphore::new(most as usize));
        let (kept, dialling) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { dialer, scheme, authority, builder, kept, dialling, permits })
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// A place for a request; `None` at the limit.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Sends a request and waits for the head of its answer. A request that met a closing connection is sent again on another,
    /// if the server cannot have run it or may run it twice.
    pub(super) async fn converse(&self, asked: Asked, repeatable: bool) -> Result<Response<Incoming>, Error> {
        let request = self.request(asked)?;
        let connection = self.connection().await?;
        let was_used = connection.used.load(Ordering::Relaxed);
        match self.head(&connection, request.clone()).await {
            Ok(response) => return Ok(response),
            Err(Failure::Unsent(_)) => {}
            Err(Failure::NoAnswer(_)) if was_used && repeatable => {}
            Err(failure) => return Err(self.explain(failure)),
        }
        let connection = self.connection().await?;
        self.head(&connection, request).await.map_err(|failure| self.explain(failure))
    }

    /// Whether the server answers a request in any way: with a head, or with a reset of this request alone. A status from
    /// 500 without a gRPC status is a failure.
    pub(super) async fn answers(&self, asked: Asked) -> Result<bool, Error> {
        let request = self.request(asked)?;
        let connection = self.connection().await?;
        let doubt = Doubt { shared: self, connection: &connection };
        let answer = self.head(&connection, request).await;
        std::mem::forget(doubt);
        match answer {
            Ok(head) => Ok(!head.status().is_server_error() || head.headers().contains_key("grpc-status")),
            Err(Failure::Broken(_)) => Ok(true),
            Err(failure) => Err(self.explain(failure)),
        }
    }

    fn request(&self, asked: Asked) -> Result<Request<Sent>, Error> {
        let Asked { method, target, mut headers, body } = asked;
        let is_call = is_grpc(&headers);
        if is_call {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        let (scheme, authority) = (self.scheme.clone(), self.authority.clone());
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
        let mut request = Request::new(Sent { body, has_length: !is_call });
        *request.method_mut() = method;
        *request.uri_mut() = uri.map_err(|error| Error::Malformed { message: error.to_string() })?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// The kept connection, or a new one. An error means that nothing was sent.
    async fn connection(&self) -> Result<SharedConnection, Error> {
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        let _alone = self.dialling.lock().await;
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        let socket = self.dialer.dial().await.map_err(|error| match error {
            Error::Transport { message, .. } => self.unsent(message),
            // It did not connect in time.
            other => self.unsent(other.to_string()),
        })?;
        let (sender, driver) = self
            .builder
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|error| self.unsent(describe(&error)))?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(error = describe(&error), "a connection of HTTP/2 ended");
            }
        });
        let connection = SharedConnection { sender, used: Arc::default() };
        *self.kept.lock() = Some(connection.clone());
        Ok(connection)
    }

    fn open_one(&self) -> Option<SharedConnection> {
        let mut kept = self.kept.lock();
        kept.take_if(|connection| connection.sender.is_closed());
        kept.clone()
    }

    /// Gives a connection up: requests in progress may end there, others get a new one.
    fn forget(&self, connection: &SharedConnection) {
        self.kept.lock().take_if(|kept| Arc::ptr_eq(&kept.used, &connection.used));
    }

    async fn head(
        &self,
        connection: &SharedConnection,
        request: Request<Sent>,
    ) -> Result<Response<Incoming>, Failure> {
        match connection.sender.clone().try_send_request(request).await {
            Ok(response) => {
                connection.used.store(true, Ordering::Relaxed);
                Ok(response)
            }
            Err(error) => {
                let (failure, is_reset) = classify(error);
                if !is_reset {
                    self.forget(connection);
                }
                Err(failure)
            }
        }
    }

    fn unsent(&self, message: String) -> Error {
        Error::Unsent { peer: self.dialer.peer().to_owned(), message }
    }

    pub(super) fn explain(&self, failure: Failure) -> Error {
        match failure {
            Failure::Unsent(message) => self.unsent(message),
            Failure::NoAnswer(message) | Failure::Broken(message) => self.dialer.transport(message),
            Failure::TooLarge => self.dialer.transport("the answer to a failed request is too large"),
        }
    }
}

/// The failure of a request, and whether it ended alone: its connection still works.
fn classify(mut error: TrySendError<Request<Sent>>) -> (Failure, bool) {
    let had_no_part = error.take_message().is_some();
    let error = error.into_error();
    let message = describe(&error);
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    let is_reset = cause.is_some_and(h2::Error::is_reset);
    let failure = if had_no_part || status::is_unread(&error) {
        Failure::Unsent(message)
    } else if is_reset {
        Failure::Broken(message)
    } else {
        Failure::NoAnswer(message)
    };
    (failure, is_reset)
}

/// Gives a connection up when it is dropped: its request had no answer in time.
struct Doubt<'a> {
    shared: &'a Http2,
    connection: &'a SharedConnection,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.shared.forget(self.connection);
    }
}

/// The body of a request, in one piece.
#[derive(Clone)]
struct Sent {
    body: Bytes,
    /// Whether its length is announced. gRPC clients do not announce it.
    has_length: bool,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = std::mem::take(&mut self.body);
        Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_length { SizeHint::with_exact(self.body.len() as u64) } else { SizeHint::default() }
    }
}
