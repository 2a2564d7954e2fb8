//! TLS on a TCP connection, as a byte stream and, for frames, as a [`Session`]: one task reads while others write, on any
//! threads, without blocking.
//!
//! Frames write through a shared reference without blocking, and must learn when the socket is full. So the stream is under a
//! lock that is never held across an await. Encrypted bytes that the socket did not accept stay in the stream; the next writer
//! sends them first, and bytes count as written only when they are out.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::advice::advised;

/// A connection after its TLS handshake.
pub(crate) type Stream = TlsStream<TcpStream>;

/// A stream whose halves work through a shared reference.
#[derive(Debug)]
pub(crate) struct Session(Mutex<Stream>);

impl From<Stream> for Session {
    fn from(stream: Stream) -> Self {
        Self(Mutex::new(stream))
    }
}

impl Session {
    /// Reads available bytes into the free capacity of the buffer; 0 if the peer closed.
    pub(crate) async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| {
            let stream = &mut *self.0.lock();
            let plain = ready!(Pin::new(&mut *stream).poll_fill_buf(cx)).map_err(advised)?;
            let read = plain.len().min(buffer.capacity() - buffer.len());
            buffer.extend_from_slice(&plain[..read]);
            Pin::new(stream).consume(read);
            Poll::Ready(Ok(read))
        })
        .await
    }

    /// Writes without blocking. Accepted bytes may not be sent yet: see [`try_flush`](Self::try_flush).
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.now(|stream, cx| stream.poll_write_vectored(cx, slices))
    }

    pub(crate) fn try_flush(&self) -> io::Result<()> {
        self.now(AsyncWrite::poll_flush)
    }

    /// Waits until all accepted bytes are sent. Nobody may write meanwhile: this task would not be woken.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut *self.0.lock()).poll_flush(cx)).await
    }

    /// Sends close_notify, and closes both directions now.
    pub(crate) fn shutdown(&self) {
        // If the socket is full, the peer sees the end of the connection instead.
        let _ = self.now(AsyncWrite::poll_shutdown);
        let _ = SockRef::from(self.0.lock().get_ref().0).shutdown(std::net::Shutdown::Both);
    }

    fn now<T>(
        &self,
        act: impl FnOnce(Pin<&mut Stream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        match act(Pin::new(&mut *self.0.lock()), &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
