//! The socket of a connection, which is looked at before the first byte of a request.
//!
//! *Problem.* A server closes a connection on which nothing came for some seconds, a new one as well as one that was kept. A
//! process that gets no time meanwhile writes its request first and notices the end afterwards. Then the request may have run, so
//! it must not be sent again.
//!
//! *Choice.* On a new connection, and after a pause, the kernel is asked before the first byte is written.
//!
//! *Rejected.* To ask before each request: a system call on the hot path.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::frames::Socket;

/// Shortest time without a byte after which a server may have closed the connection.
const PAUSE: Duration = Duration::from_millis(100);

const SENDING: u8 = 0;
/// No byte of the request was written.
const WAITING: u8 = 1;
/// No byte was written, because the server had closed the connection.
const ENDED: u8 = 2;

/// The state of the request on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AtomicU8>);

impl Turn {
    /// Another request begins.
    pub(super) fn begin(&self) {
        self.0.store(WAITING, Ordering::Relaxed);
    }

    /// Whether a byte of the request may have been written.
    pub(super) fn is_sending(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SENDING
    }

    /// Whether the server closed the connection before the request.
    pub(super) fn is_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ENDED
    }
}

/// A socket.
pub(super) struct CheckedSocket {
    socket: Socket,
    turn: Turn,
    /// When the last byte came; `None` before the first.
    heard: Option<Instant>,
}

impl CheckedSocket {
    pub(super) fn new(socket: Socket, turn: Turn) -> Self {
        Self { socket, turn, heard: None }
    }

    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }

    /// An error if the server closed the connection before the request that is about to be written.
    fn look(&self) -> io::Result<()> {
        if self.turn.0.load(Ordering::Relaxed) != WAITING {
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
