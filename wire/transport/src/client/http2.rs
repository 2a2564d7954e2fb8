//! HTTP/2 connections to a server, shared by all of its requests and dialled again after they break.
//!
//! Problem: one slow reader must not hold back the other requests of its connection, a connection that went silent must
//! be replaced, and a server may limit the requests of a connection, of which a stream is one until it ends.
//!
//! Choice: the window of a connection is the largest possible, so a full stream leaves room for the others, and the windows of
//! the streams bound the memory. The library ends a connection with too many small unread pieces, and its limit is half of that
//! window. A health check that gets no answer in time gives its connection up. A request gets the first connection below the
//! server's limit, and there is one connection unless the server has such a limit.
//!
//! Rejected: pings of HTTP/2, because gRPC servers close the connections of clients that ping often during a long call.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::TE;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use parm_protocol::rest::Encoded;
use parm_protocol::{Error, ReaderHandle, StreamReader, Withdrawn, is_grpc};

use super::dial::Dialer;
use super::pool::{Failure, Payload, describe, with_body};
use crate::frames::Socket;

/// The largest window of a connection that HTTP/2 knows.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The error of a request that this server cannot get from its beginning to its end.
const TOO_LONG: &str = "its client has sent too much for a copy";

/// Shared connections to one server.
pub(super) struct Http2 {
    scheme: Scheme,
    authority: Authority,
    builder: Builder<TokioExecutor>,
    kept: Mutex<Vec<SharedConnection>>,
    /// Held while dialling, so that requests that arrive together dial once.
    dialling: tokio::sync::Mutex<()>,
}

/// A connection, whose task ends after the last request when no handle is left.
#[derive(Clone)]
pub(super) struct SharedConnection {
    sender: SendRequest<Sent>,
    load: Arc<Load>,
    /// Knows the server's limit on requests.
    driver: Arc<Mutex<Option<Driver>>>,
}

type Driver = Connection<TokioIo<Socket>, Sent, TokioExecutor>;

#[derive(Default)]
struct Load {
    /// Whether a request was answered here already.
    used: AtomicBool,
    streams: AtomicUsize,
}

/// A request in progress on a connection, until it is dropped.
pub(super) struct OpenStream {
    load: Arc<Load>,
    /// Its own request, if the client may send more.
    pub(super) asking: Option<ReaderHandle>,
}

impl OpenStream {
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
    pub(super) fn is_used(&self) -> bool {
        self.load.used.load(Ordering::Relaxed)
    }

    /// Whether the server takes no further request here now.
    fn is_full(&self) -> bool {
        let most = self.driver.lock().as_ref().map_or(usize::MAX, Driver::current_max_send_streams);
        self.load.streams.load(Ordering::Relaxed) >= most.max(1)
    }

    fn begin(&self) -> (Self, OpenStream) {
        self.load.streams.fetch_add(1, Ordering::Relaxed);
        (self.clone(), OpenStream { load: self.load.clone(), asking: None })
    }
}

impl Http2 {
    /// Connections to the server of `dialer`, with this window for each answer. Nothing is sent yet.
    pub(super) fn new(dialer: &Dialer, window: u32) -> Result<Self, Error> {
        let authority = dialer.authority().parse().map_err(|error| Error::Malformed {
            message: format!("'{}' is not a host: {error}", dialer.peer()),
        })?;
        let scheme = if dialer.scheme() == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window).initial_connection_window_size(LARGEST_WINDOW);
        let (kept, dialling) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { scheme, authority, builder, kept, dialling })
    }

    /// A kept connection with room, or a new one. An error means that nothing was sent.
    pub(super) async fn connection(
        &self,
        dialer: &Dialer,
    ) -> Result<(SharedConnection, OpenStream), Failure> {
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        let _alone = self.dialling.lock().await;
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        let socket = dialer.dial().await.map_err(Failure::NotConnected)?;
        let handshake = self.builder.handshake(TokioIo::new(socket)).await;
        let (sender, driver) = handshake.map_err(|error| Failure::Unsent(describe(&error)))?;
        let driver = Arc::new(Mutex::new(Some(driver)));
        tokio::spawn(drive(driver.clone()));
        let connection = SharedConnection { sender, load: Arc::default(), driver };
        let begun = connection.begin();
        self.kept.lock().push(connection);
        Ok(begun)
    }

    fn open_one(&self) -> Option<(SharedConnection, OpenStream)> {
        let mut kept = self.kept.lock();
        kept.retain(|connection| !connection.sender.is_closed());
        kept.iter().find(|connection| !connection.is_full()).map(SharedConnection::begin)
    }

    /// Gives a connection up: requests in progress may end there, others get a new one.
    fn forget(&self, connection: &SharedConnection) {
        self.kept.lock().retain(|kept| !Arc::ptr_eq(&kept.load, &connection.load));
    }

    /// Sends a request and waits for the head of the answer, as long as the server gets the request. The connection of a
    /// `question` that is dropped before its answer is given up.
    pub(super) async fn head(
        &self,
        connection: &SharedConnection,
        mut stream: OpenStream,
        request: &Request<Payload>,
        question: bool,
    ) -> Result<(Response<Incoming>, OpenStream), Failure> {
        let request = self.request(request, &mut stream)?;
        let doubt = question.then(|| Doubt { shared: self, connection });
        let mut answer = pin!(connection.sender.clone().try_send_request(request));
        let answer = poll_fn(|cx| {
            let answer = answer.as_mut().poll(cx);
            let is_open = matches!(answer, Poll::Pending | Poll::Ready(Err(_)));
            if is_open && stream.is_lost(cx) { Poll::Ready(None) } else { answer.map(Some) }
        })
        .await;
        std::mem::forget(doubt);
        match answer {
            None => Err(OpenStream::lost()),
            Some(Ok(response)) => {
                connection.load.used.store(true, Ordering::Relaxed);
                Ok((response, stream))
            }
            Some(Err(error)) => {
                let (failure, is_reset) = classify(error);
                if !is_reset {
                    self.forget(connection);
                }
                Err(failure)
            }
        }
    }

    /// The request on this stream, which ends no later than the stream does.
    fn request(&self, request: &Request<Payload>, on: &mut OpenStream) -> Result<Request<Sent>, Failure> {
        let is_call = is_grpc(request.headers());
        let body = match request.body() {
            Payload::Whole(body) => Sent::Whole { body: body.clone(), has_length: !is_call },
            Payload::Streamed(stream) => {
                let (reader, handle) = stream.reader().ok_or_else(OpenStream::lost)?;
                on.asking = Some(handle);
                Sent::Streamed(reader)
            }
        };
        let mut sent = with_body(request, body);
        if is_call {
            sent.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        }
        let mut uri = sent.uri().clone().into_parts();
        (uri.scheme, uri.authority) = (Some(self.scheme.clone()), Some(self.authority.clone()));
        let malformed = |error: http::uri::InvalidUriParts| Error::malformed(error.to_string());
        *sent.uri_mut() = Uri::from_parts(uri).map_err(malformed).map_err(Failure::NotConnected)?;
        Ok(sent)
    }
}

/// Drives a connection to its end. Then its requests fail, because nothing of it is left.
async fn drive(driver: Arc<Mutex<Option<Driver>>>) {
    let end = poll_fn(|cx| match &mut *driver.lock() {
        Some(driver) => Pin::new(driver).poll(cx),
        None => Poll::Ready(Ok(())),
    });
    if let Err(error) = end.await {
        tracing::debug!(error = describe(&error), "a connection of HTTP/2 ended");
    }
    let ended = driver.lock().take();
    drop(ended);
}

fn cause(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref())
}

/// The failure of a request, and whether it ended alone: its connection still works.
fn classify(mut error: TrySendError<Request<Sent>>) -> (Failure, bool) {
    let had_no_part = error.take_message().is_some();
    let error = error.into_error();
    let message = describe(&error);
    let cause = cause(&error);
    let is_reset = cause.is_some_and(h2::Error::is_reset);
    // The request came after the last stream in the server's GOAWAY.
    let is_refused = cause.is_some_and(|error| {
        error.is_remote()
            && match error.reason() {
                Some(h2::Reason::REFUSED_STREAM) => true,
                Some(h2::Reason::NO_ERROR) => error.is_go_away(),
                _ => false,
            }
    });
    let failure = if had_no_part || error.is_canceled() || is_refused {
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

enum Sent {
    /// gRPC clients do not announce the length.
    Whole { body: Encoded, has_length: bool },
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
            Self::Whole { body, .. } => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Streamed(reader) => {
                let piece = std::task::ready!(reader.poll_next(cx));
                // The error resets the request at its server.
                let cancelled = |Withdrawn| h2::Error::from(h2::Reason::CANCEL);
                Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(cancelled)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole { body, .. } if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body, has_length: true } => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
