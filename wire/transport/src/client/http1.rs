//! One HTTP/1.1 connection, driven by its caller.
//!
//! No task stands between the caller and the socket, so an exchange costs no task switch, and dropping the caller's
//! future closes the connection.
//!
//! *Problem.* A server closes a connection on which nothing came for some seconds, a new one as well as one that was kept. A
//! process that gets no time meanwhile writes its request first and notices the end afterwards. Then the request may have run, so
//! it must not be sent again.
//!
//! *Choice.* On a new connection, and after a pause, the kernel is asked before the first byte is written.
//!
//! *Rejected.* To ask before each request: a system call on the hot path.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parm_protocol::rest::Encoded;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::pool::{Failure, describe};
use crate::frames::Socket;

/// Most headers of a response: servers of any kind send more than hyper's 100, such as one for each limit or feature.
pub(super) const HEADERS: usize = 256;

pub(super) struct HttpConnection {
    sender: http1::SendRequest<Encoded>,
    driver: http1::Connection<TokioIo<CheckedSocket>, Encoded>,
    turn: Turn,
    /// Whether an exchange succeeded here already.
    pub(super) used: bool,
}

/// A connection that goes on in another protocol.
pub(super) struct Upgraded {
    pub(super) headers: HeaderMap,
    pub(super) socket: Socket,
    /// What the server sent on it already.
    pub(super) already_read: Bytes,
}

impl HttpConnection {
    pub(super) async fn open(socket: Socket) -> Result<Self, hyper::Error> {
        let turn = Turn::default();
        let socket = TokioIo::new(CheckedSocket { socket, turn: turn.clone(), heard: None });
        let (sender, driver) =
            http1::Builder::new().writev(true).max_headers(HEADERS).handshake(socket).await?;
        Ok(Self { sender, driver, turn, used: false })
    }

    /// Whether the server still listens, as far as is known: an idle connection may have been closed meanwhile.
    pub(super) fn is_alive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.driver.poll_without_shutdown(&mut cx).is_pending() && !self.sender.is_closed()
    }

    /// Whether another request may follow.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.is_alive() && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its response. Data arrives while the driver is polled here, so no task
    /// needs waking.
    pub(super) async fn head(&mut self, request: Request<Encoded>) -> Result<Response<Incoming>, Failure> {
        self.turn.begin();
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            let end = self.driver.poll_without_shutdown(cx);
            if let Poll::Ready(answer) = response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Poll::Ready(answer.map_err(|mut error| {
                    let is_unsent = error.take_message().is_some() || self.turn.is(ENDED);
                    let message = describe(error.error());
                    if is_unsent { Failure::Unsent(message) } else { Failure::NoAnswer(message) }
                }));
            }
            match end {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(())) => {
                    let message = "closed by the server".into();
                    let is_sent = self.turn.is(SENDING);
                    Poll::Ready(Err(if is_sent {
                        Failure::NoAnswer(message)
                    } else {
                        Failure::Unsent(message)
                    }))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(Failure::NoAnswer(describe(&error)))),
            }
        })
        .await
    }

    /// The next bytes of a body. Trailers are dropped.
    pub(super) fn poll_frame(
        &mut self,
        mut body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        loop {
            // The driver's end shows in the body, unless the body is complete.
            let _ = self.driver.poll_without_shutdown(cx);
            match Pin::new(&mut body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Failure::Broken(describe(&error))));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if frame.is_data() {
                        return Poll::Ready(Ok(Some(frame)));
                    }
                }
            }
        }
    }

    /// Asks for another protocol. Returns the connection after a `101`, and any other response as it is.
    pub(super) async fn upgrade(
        mut self,
        request: Request<Encoded>,
    ) -> Result<Result<Upgraded, (Response<Incoming>, Self)>, Failure> {
        let mut response = self.head(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Err((response, self)));
        }
        let parts =
            self.driver.without_shutdown().await.map_err(|error| Failure::Broken(describe(&error)))?;
        let headers = std::mem::take(response.headers_mut());
        Ok(Ok(Upgraded { headers, socket: parts.io.into_inner().socket, already_read: parts.read_buf }))
    }
}

/// Shortest time without a byte after which a server may have closed the connection.
const PAUSE: Duration = Duration::from_millis(100);

const SENDING: u8 = 0;
/// No byte of the request was written.
const WAITING: u8 = 1;
/// No byte was written, because the server had closed the connection.
const ENDED: u8 = 2;

/// The state of the request on a connection.
#[derive(Clone, Debug, Default)]
struct Turn(Arc<AtomicU8>);

impl Turn {
    /// Another request begins.
    fn begin(&self) {
        self.0.store(WAITING, Ordering::Relaxed);
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }
}

/// A socket, which is looked at before the first byte of a request.
struct CheckedSocket {
    socket: Socket,
    turn: Turn,
    /// When the last byte came; `None` before the first.
    heard: Option<Instant>,
}

impl CheckedSocket {
    /// An error if the server closed the connection before the request that is about to be written.
    fn look(&self) -> io::Result<()> {
        if !self.turn.is(WAITING) {
            return Ok(());
        }
        let is_recent = self.heard.is_some_and(|heard| heard.elapsed() < PAUSE);
        if is_recent || self.socket.is_quiet() {
            self.turn.0.store(SENDING, Ordering::Relaxed);
            return Ok(());
        }
        self.turn.0.store(ENDED, Ordering::Relaxed);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the server before the request"))
    }
}

impl AsyncRead for CheckedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.heard = Some(Instant::now());
        }
        read
    }
}

impl AsyncWrite for CheckedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look()?;
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.look()?;
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
