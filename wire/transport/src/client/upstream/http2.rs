//! HTTP/2 connections to a server, shared by all of its requests and dialled again after they break.
//!
//! Problem: one slow reader must not hold back the other requests of its connection, a connection that went silent must
//! be replaced, and a server may limit the requests of a connection, of which a stream is one until it ends.
//!
//! Choice: the window of a connection is the largest possible, so a full stream leaves room for the others, and the windows of
//! the streams bound the memory. The library ends a connection with too many small unread pieces, and its limit is half of that
//! window. It also ends a connection after a hundred empty pieces in all its answers, which it does not pass on: once that
//! has happened, the connections to this server get fewer requests each. A health check that gets no answer in time gives its
//! connection up. A request gets the first connection below the server's limit, and there is one connection unless the server
//! has such a limit.
//!
//! Rejected: pings of HTTP/2, because gRPC servers close the connections of clients that ping often during a long call.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::TE;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use parm_protocol::{Error, ReaderHandle, RequestStream, StreamReader, Withdrawn, is_grpc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::uplink::explain;
use crate::client::Config;
use crate::client::dial::Dialer;
use crate::client::http::connection::{Failure, describe};
use crate::client::status;
use crate::frames::Socket;

/// Bytes of one answer that the server may send before the client has read them.
const WINDOW: u32 = 256 << 10;

/// The largest window of a connection that HTTP/2 knows.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// Requests of a connection after the library has ended another one for its pieces. Each further end halves them.
const AFTER_AN_END: usize = 64;

/// The error of a request that this server cannot get from its beginning to its end.
const TOO_LONG: &str = "its client has sent too much for a copy";

/// Shared connections to one server.
pub(super) struct Http2 {
    dialer: Dialer,
    scheme: Scheme,
    authority: Authority,
    builder: Builder<TokioExecutor>,
    kept: Mutex<Vec<SharedConnection>>,
    /// Held while dialling, so that requests that arrive together dial once.
    dialling: tokio::sync::Mutex<()>,
    permits: Arc<Semaphore>,
    /// Requests that a connection gets in all.
    most: Arc<AtomicUsize>,
}

/// A connection, whose task ends after the last request when no handle is left.
#[derive(Clone)]
struct SharedConnection {
    sender: SendRequest<Sent>,
    /// Whether a request was answered here already.
    used: Arc<AtomicBool>,
    load: Arc<Load>,
    /// Knows the server's limit on them.
    driver: Arc<Mutex<Option<Driver>>>,
}

type Driver = Connection<TokioIo<Socket>, Sent, TokioExecutor>;

/// The load of a connection.
#[derive(Default)]
struct Load {
    /// Its requests in progress.
    streams: AtomicUsize,
    /// Its requests so far.
    requests: AtomicUsize,
}

/// A request in progress on a connection, until it is dropped.
pub(super) struct OpenStream {
    load: Arc<Load>,
    /// Its own request, if the client may send more.
    pub(super) asking: Option<ReaderHandle>,
}

impl OpenStream {
    /// Waits for the head of the answer, as long as the server gets its own request.
    async fn unless_lost<T>(&self, head: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let mut head = std::pin::pin!(head);
        poll_fn(|cx| {
            let head = head.as_mut().poll(cx);
            let is_open = matches!(head, Poll::Pending | Poll::Ready(Err(_)));
            if is_open && self.is_lost(cx) { Poll::Ready(Err(Self::lost())) } else { head }
        })
        .await
    }

    /// Whether its own request was lost, because the server reads it too slowly.
    pub(super) fn is_lost(&self, cx: &mut Context<'_>) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.poll_lost(cx).is_ready())
    }

    /// The failure of such a request, which is not the server's fault.
    pub(super) fn lost() -> Failure {
        Failure::Unsent(TOO_LONG.into())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.load.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedConnection {
    /// Whether the server takes no further request here now.
    fn is_full(&self) -> bool {
        let most = self.driver.lock().as_ref().map_or(usize::MAX, Driver::current_max_send_streams);
        self.load.streams.load(Ordering::Relaxed) >= most.max(1)
    }

    /// Whether it has had all requests that it gets.
    fn is_worn(&self, most: usize) -> bool {
        self.load.requests.load(Ordering::Relaxed) >= most
    }

    fn begin(&self) -> (Self, OpenStream) {
        self.load.streams.fetch_add(1, Ordering::Relaxed);
        self.load.requests.fetch_add(1, Ordering::Relaxed);
        (self.clone(), OpenStream { load: self.load.clone(), asking: None })
    }
}

/// Most connections for one probe, of which all but the last had answered before.
const PROBES: u32 = 3;

/// A request without its server.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// In place of the body, if the client may send more.
    pub(super) stream: Option<Arc<RequestStream>>,
}

impl Http2 {
    /// A connection through `dialer`, for as many requests at a time as `config` allows. Nothing is sent yet.
    pub(super) fn new(dialer: Dialer, config: &Config) -> Result<Self, Error> {
        let authority = dialer.authority().parse().map_err(|error| Error::Malformed {
            message: format!("'{}' is not a host: {error}", dialer.peer()),
        })?;
        let scheme = if dialer.scheme() == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let limit = config.max_connections.get();
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(LARGEST_WINDOW);
        let permits = Arc::new(Semaphore::new(limit as usize));
        let (kept, dialling) = (Mutex::default(), tokio::sync::Mutex::default());
        let most = Arc::new(AtomicUsize::new(usize::MAX));
        Ok(Self { dialer, scheme, authority, builder, kept, dialling, permits, most })
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
    pub(super) async fn converse(
        &self,
        asked: Asked,
        repeatable: bool,
    ) -> Result<(Response<Incoming>, OpenStream), Error> {
        let (connection, mut stream) = self.connection().await?;
        let was_used = connection.used.load(Ordering::Relaxed);
        let request = self.request(asked.clone(), &mut stream)?;
        match stream.unless_lost(self.head(&connection, request)).await {
            Ok(response) => return Ok((response, stream)),
            Err(Failure::Unsent(_)) => {}
            Err(Failure::NoAnswer(_)) if was_used && repeatable => {}
            Err(failure) => return Err(self.explain(failure)),
        }
        drop(stream);
        let (connection, mut stream) = self.connection().await?;
        let request = self.request(asked, &mut stream)?;
        let response = stream.unless_lost(self.head(&connection, request)).await;
        Ok((response.map_err(|failure| self.explain(failure))?, stream))
    }

    /// Whether the server answers a request in any way: with a head, or with a reset of this request alone. A status from
    /// 500 without a gRPC status is a failure.
    pub(super) async fn answers(&self, asked: Asked) -> Result<bool, Error> {
        let mut left = PROBES;
        loop {
            left -= 1;
            let (connection, mut stream) = self.connection().await?;
            let was_used = connection.used.load(Ordering::Relaxed);
            let request = self.request(asked.clone(), &mut stream)?;
            let doubt = Doubt { shared: self, connection: &connection };
            let answer = self.head(&connection, request).await;
            std::mem::forget(doubt);
            match answer {
                Ok(head) => {
                    return Ok(!head.status().is_server_error() || head.headers().contains_key("grpc-status"));
                }
                Err(Failure::Broken(_)) => return Ok(true),
                // Servers end connections by age. That says nothing about the server.
                Err(Failure::Unsent(_) | Failure::NoAnswer(_)) if was_used && left > 0 => {}
                Err(failure) => return Err(self.explain(failure)),
            }
        }
    }

    /// The request on this stream, which ends no later than the stream does.
    fn request(&self, asked: Asked, on: &mut OpenStream) -> Result<Request<Sent>, Error> {
        let Asked { method, target, mut headers, body, stream } = asked;
        let is_call = is_grpc(&headers);
        if is_call {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        let (scheme, authority) = (self.scheme.clone(), self.authority.clone());
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
        let sent = match stream {
            None => Sent::Whole { body, has_length: !is_call },
            Some(stream) => {
                let unsent = || self.unsent(TOO_LONG.into());
                let (reader, handle) = stream.reader().ok_or_else(unsent)?;
                on.asking = Some(handle);
                Sent::Streamed(reader)
            }
        };
        let mut request = Request::new(sent);
        *request.method_mut() = method;
        *request.uri_mut() = uri.map_err(|error| Error::Malformed { message: error.to_string() })?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// A kept connection with room, or a new one. An error means that nothing was sent.
    async fn connection(&self) -> Result<(SharedConnection, OpenStream), Error> {
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
        let driver = Arc::new(Mutex::new(Some(driver)));
        tokio::spawn(drive(driver.clone(), self.most.clone()));
        let (used, load) = Default::default();
        let connection = SharedConnection { sender, used, load, driver };
        let begun = connection.begin();
        self.kept.lock().push(connection);
        Ok(begun)
    }

    fn open_one(&self) -> Option<(SharedConnection, OpenStream)> {
        let mut kept = self.kept.lock();
        let most = self.most.load(Ordering::Relaxed);
        // The requests in progress on a worn connection end there.
        kept.retain(|connection| !connection.sender.is_closed() && !connection.is_worn(most));
        kept.iter().find(|connection| !connection.is_full()).map(SharedConnection::begin)
    }

    /// Gives a connection up: requests in progress may end there, others get a new one.
    fn forget(&self, connection: &SharedConnection) {
        self.kept.lock().retain(|kept| !Arc::ptr_eq(&kept.used, &connection.used));
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
        self.explain(Failure::Unsent(message))
    }

    pub(super) fn explain(&self, failure: Failure) -> Error {
        explain(&self.dialer, failure)
    }
}

/// Drives a connection to its end. Then its requests fail, because nothing of it is left.
async fn drive(driver: Arc<Mutex<Option<Driver>>>, most: Arc<AtomicUsize>) {
    let end = poll_fn(|cx| match &mut *driver.lock() {
        Some(driver) => Pin::new(driver).poll(cx),
        None => Poll::Ready(Ok(())),
    });
    if let Err(error) = end.await {
        tracing::debug!(error = describe(&error), "a connection of HTTP/2 ended");
        if had_too_many_pieces(&error) {
            let fewer = |most: usize| Some((most / 2).clamp(1, AFTER_AN_END));
            let _ = most.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
    }
    let ended = driver.lock().take();
    drop(ended);
}

/// Whether the library ended a connection for the number of its empty or small pieces.
fn had_too_many_pieces(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_library() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
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

/// The body of a request.
enum Sent {
    /// In one piece. gRPC clients do not announce its length.
    Whole { body: Bytes, has_length: bool },
    /// While the client sends it.
    Streamed(StreamReader),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match &mut *self {
            Self::Whole { body, .. } => {
                let body = std::mem::take(body);
                Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))))
            }
            Self::Streamed(reader) => {
                let piece = std::task::ready!(reader.poll_next(cx));
                // The error resets the request at its server.
                let cancelled = |Withdrawn| h2::Error::from(h2::Reason::CANCEL);
                Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(cancelled)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole { body, .. } if body.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body, has_length: true } => SizeHint::with_exact(body.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
