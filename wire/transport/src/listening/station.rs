//! A listener that serves: accepts connections, and answers the requests of each with a `tower` service.
//!
//! One coarse clock watches a connection, instead of a timer per request. It ticks as often as the shortest timeout
//! requires. It closes a connection that never sent a request in time, has been idle for too long, or does not read its
//! responses. Other requests of the connection may finish first if they do so soon: a proxy may multiplex many clients
//! over one connection, and only one of them may be slow.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parm_protocol::is_grpc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ConnectionLimits;
use super::listener::Listener;
use super::room::{ClientEnd, Connection, Room, Running, Tracked};
use super::unfinished::{Lent, Unfinished};
use crate::budget::Share;
use crate::frames::Socket;
use crate::tls::{Tls, Welcome};

/// Bytes of an HTTP/1.1 head, and of one read or write.
const BUFFER: usize = 400 << 10;

/// Flow-control windows of HTTP/2: a request of a megabyte arrives without waiting for the window.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Largest frame of HTTP/2: the minimum of the protocol, so that streams alternate.
const FRAME: u32 = 16 << 10;

/// Bytes of a head of HTTP/2 after decompression. A head that continues in other frames is bounded by it too.
const HEAD_LIST: u32 = 16 << 10;

/// Bytes of a response that a stream buffers for a client that does not read.
const SEND_BUFFER: usize = 400 << 10;

/// Streams that a client opened and reset before they were accepted (CVE-2023-44487): more end the connection.
const RESETS: usize = 20;

/// Streams that this end reset because of a client's mistake (CVE-2025-8671): more end the connection. Rejected streams
/// count too, and a client may exceed its limit before it learns it.
const FAULTS: usize = 1024;

/// Silence on an HTTP/2 connection after which a ping is sent, and the time for the answer to it.
const PING: Duration = Duration::from_secs(20);

/// The fractional part of the golden ratio, of 2^32. Its multiples are spread evenly for any number of connections.
const GOLDEN: u32 = 0x9e37_79b9;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connections that end together; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Cancelled when listening has ended: connections finish their requests and close.
    pub(crate) begun: CancellationToken,
    /// Cancelled when the drain timeout has expired.
    pub(crate) cut: CancellationToken,
    pub(crate) connections: TaskTracker,
}

impl Drain {
    /// Lets connections finish within `limit`, and returns how many had to be cut.
    pub(crate) async fn end(&self, limit: Duration) -> usize {
        self.begun.cancel();
        self.connections.close();
        let cut = match tokio::time::timeout(limit, self.connections.wait()).await {
            Ok(()) => 0,
            Err(_) => self.connections.len(),
        };
        self.cut.cancel();
        cut
    }
}

/// Ages at which connections end, spread by a tenth around the configured age: connections that were opened together must not
/// end together.
#[derive(Debug)]
pub(crate) struct Ages {
    most: Duration,
    taken: AtomicU32,
}

impl Ages {
    /// Zero means no limit.
    pub(crate) fn new(most: Duration) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicU32::new(0) })
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        let share = self.taken.fetch_add(GOLDEN, Ordering::Relaxed);
        let age = self.most.mul_f64(0.9 + 0.2 * f64::from(share) / f64::from(u32::MAX));
        (!self.most.is_zero()).then_some(age)
    }
}

/// A bound listener, ready to serve.
#[derive(Debug)]
pub struct Station {
    listener: Listener,
    setup: Setup,
}

#[derive(Clone, Debug)]
struct Setup {
    limits: Arc<ConnectionLimits>,
    ages: Arc<Ages>,
    welcome: Welcome,
    drain: Drain,
    room: Arc<Room>,
}

/// A service that answers the requests of connections. A response of known size is one piece, and its request ends when it is
/// made. Any other response is a stream, and its request ends with the last part.
pub trait Answers<B>:
    tower::Service<Request<Lent<Incoming>>, Response = Response<B>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<B, S> Answers<B> for S where
    S: tower::Service<Request<Lent<Incoming>>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The body of a response.
pub trait Answer: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> Answer for B {}

impl Station {
    /// A station, behind TLS if it is configured. Its connections take places of `room`, which several stations may
    /// share.
    pub fn new(listener: Listener, tls: &Tls, limits: ConnectionLimits, room: Arc<Room>) -> Self {
        let (welcome, ages) = (tls.welcome(), Ages::new(limits.age));
        let setup = Setup { limits: Arc::new(limits), ages, welcome, drain: Drain::default(), room };
        Self { listener, setup }
    }

    /// Ends its connections together with others, and spreads their ages over all of them.
    pub(crate) fn together(mut self, drain: Drain, ages: Arc<Ages>) -> Self {
        (self.setup.drain, self.setup.ages) = (drain, ages);
        self
    }

    /// The listener.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Accepts connections until `stop`. Then the listener is closed; its connections continue.
    pub(crate) async fn accept<B: Answer>(self, service: impl Answers<B>, stop: impl Future<Output = ()>) {
        let Self { listener, setup } = self;
        let mut stop = pin!(stop);
        loop {
            // A listener takes a place only when it has a connection: otherwise an unused listener would hold a place
            // that others need. One connection per listener may wait; the rest wait in the kernel's queue.
            let next = async {
                let socket = listener.accept(&setup.room, &setup.limits).await;
                (socket, setup.room.enter(setup.limits.spare).await)
            };
            let (socket, connection) = tokio::select! {
                biased;
                () = stop.as_mut() => return,
                next = next => next,
            };
            setup.drain.connections.spawn(setup.clone().serve(socket, service.clone(), connection));
        }
    }

    /// Serves until `stop`, lets connections finish within the limit, and cuts the others.
    pub async fn serve<B: Answer>(self, service: impl Answers<B>, stop: impl Future<Output = ()>) {
        let (drain, limit) = (self.setup.drain.clone(), self.setup.limits.drain);
        self.accept(service, stop).await;
        let cut = drain.end(limit).await;
        if cut > 0 {
            tracing::debug!(cut, "connections were cut: the drain timeout expired");
        }
    }
}

impl Setup {
    /// Serves one connection, which holds its place until it ends.
    async fn serve<B: Answer>(self, socket: Socket, service: impl Answers<B>, connection: Connection) {
        let activity = connection.activity().clone();
        let welcomed = tokio::select! {
            biased;
            welcomed = self.welcome(socket) => welcomed,
            // No request has arrived: the client can connect to another server.
            () = self.drain.begun.cancelled() => return,
            () = activity.evicted() => return,
        };
        let Ok(socket) = welcomed else { return };
        activity.welcomed(ClientEnd { address: socket.peer(), secured: socket.is_secured() });
        let limits = &self.limits;
        let service = {
            let limits = limits.clone();
            hyper::service::service_fn(move |request| {
                answer(service.clone(), connection.clone(), limits.clone(), request)
            })
        };
        let builder = self.builder();
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
        let unread = activity.unread.clone();
        let mut taking = limits.answer;
        let mut draining = false;
        let mut old = pin!(after(self.ages.next()));
        loop {
            // A request may arrive before the timeout for its head, and the idle timeout may be shorter.
            let patience =
                activity.patience(limits.head, limits.idle).min(limits.idle).min(unread.patience(taking));
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke");
                    }
                    return;
                }
                () = self.drain.begun.cancelled(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.drain.cut.cancelled(), if draining => return,
                () = activity.evicted() => {
                    tracing::debug!("a connection without a request was closed for another");
                    return;
                }
                () = old.as_mut(), if !draining && !activity.is_old() => {
                    if activity.grow_old() {
                        connection.as_mut().graceful_shutdown();
                    }
                }
                () = tokio::time::sleep(patience) => {
                    if activity.patience(limits.head, limits.idle).is_zero() {
                        // Nothing is in progress on it: no response is lost.
                        return;
                    }
                    if unread.patience(taking).is_zero() {
                        let last = taking > limits.answer;
                        if last || activity.only_answers() {
                            tracing::debug!("a connection was closed: its client did not take an answer in time");
                            return;
                        }
                        taking *= 2;
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }

    async fn welcome(&self, socket: Socket) -> io::Result<Socket> {
        match tokio::time::timeout(self.limits.first_byte, socket.first_byte()).await {
            Ok(first) => first?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        self.welcome.greet(socket).await
    }

    /// All limits of HTTP/1.1 and HTTP/2 are set here instead of left to the library. Heads have no timeout here: a connection
    /// has one for all protocols. The number of headers has hyper's limit of 100; setting it would make each request allocate.
    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().header_read_timeout(None).half_close(false).max_buf_size(BUFFER);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.limits.streams.get())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .max_header_list_size(HEAD_LIST)
            .max_send_buf_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(FAULTS)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        builder
    }
}

/// Waits so long; for ever without an age.
pub(crate) async fn after(age: Option<Duration>) {
    match age {
        Some(age) => tokio::time::sleep(age).await,
        None => std::future::pending().await,
    }
}

/// Answers a request, which is in progress until its response exists, or until the end of a stream.
async fn answer<B: Answer>(
    mut service: impl Answers<B>,
    connection: Connection,
    limits: Arc<ConnectionLimits>,
    request: Request<Incoming>,
) -> Result<Response<Tracked<B>>, Infallible> {
    let activity = connection.activity().clone();
    let running = Running::new(activity.clone());
    activity.note_version(request.version());
    let is_call = is_grpc(request.headers());
    let (mut request, unfinished) = Unfinished::lend(request);
    request.extensions_mut().insert(connection);
    let mut response = service.call(request).await?;
    if activity.is_old() && response.version() < Version::HTTP_2 {
        response.headers_mut().entry(CONNECTION).or_insert(HeaderValue::from_static("close"));
    }
    let share = response.extensions_mut().remove::<Arc<Share>>();
    if share.is_none() && response.body().size_hint().exact().is_none() {
        return Ok(response.map(|body| Tracked::messages(body, running)));
    }
    // The client of a call may wait for the answer before it ends its request, and knows the reset that it gets then.
    let running = match !is_call && unfinished.is_left(limits.body_bytes) {
        true => {
            // A client that sends the rest slowly does not keep its connection from making room for another.
            drop(running);
            unfinished.pass_over(limits.body_bytes, limits.body).await;
            None
        }
        false => Some(running),
    };
    let response = response.map(|body| Tracked::whole(body, &activity, share));
    drop(running);
    Ok(response)
}

/// Serves one connection like a station, for tests that make the socket themselves.
#[cfg(test)]
pub(crate) async fn serve_one<B: Answer>(
    socket: Socket,
    service: impl Answers<B>,
    limits: ConnectionLimits,
    drain: Drain,
) {
    let room = Room::new(1, "the test");
    let (welcome, ages) = (Welcome::default(), Ages::new(limits.age));
    let connection = room.enter(limits.spare).await;
    let setup = Setup { limits: Arc::new(limits), ages, welcome, drain, room };
    setup.serve(socket, service, connection).await;
}
