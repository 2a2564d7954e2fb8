//! The byte streams of all connections, for HTTP as well; frames split them into halves.
//!
//! An enum avoids dynamic dispatch on the hot path, and the write half can be used through a shared reference.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::tls::{Session, Stream, advised};

/// The same for each kind of stream.
macro_rules! each {
    ($kind:ident, $this:expr, $stream:ident => $result:expr) => {
        match $this {
            $kind::Tcp($stream) => $result,
            $kind::Unix($stream) => $result,
            $kind::Tls($stream) => $result,
        }
    };
}

/// A connected stream.
#[derive(Debug)]
pub enum Socket {
    /// TCP; its Nagle delay should be off.
    Tcp(TcpStream),
    /// A Unix domain socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<Stream>),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket::Tcp(stream)
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Socket::Unix(stream)
    }
}

impl Socket {
    /// The other side's address; `None` for a Unix socket.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        let address = match self {
            Socket::Tcp(stream) => stream.peer_addr().ok()?,
            Socket::Tls(stream) => stream.get_ref().0.peer_addr().ok()?,
            Socket::Unix(_) => return None,
        };
        Some(address.ip().to_canonical())
    }

    pub(crate) fn is_secured(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// Waits until the peer has sent a byte, or disconnected. The byte is not consumed.
    pub(crate) async fn first_byte(&self) -> io::Result<()> {
        // The readiness of a new socket may be wrong: only peeking tells.
        let mut byte = [MaybeUninit::uninit()];
        let looked = match self {
            Socket::Tcp(stream) => {
                stream.async_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)).await
            }
            Socket::Unix(stream) => {
                stream.async_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)).await
            }
            // The handshake was first, and bytes may have arrived with it.
            Socket::Tls(_) => Ok(0),
        };
        looked.map(drop)
    }

    /// Whether the peer has neither ended the stream nor sent a byte that was not read, as the kernel knows now. Not known of TLS,
    /// which has messages of its own: true.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let looked = match self {
            Socket::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            Socket::Unix(stream) => SockRef::from(stream).peek(&mut byte),
            Socket::Tls(_) => return true,
        };
        looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(super) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Socket::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Socket::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
            Socket::Tls(stream) => {
                let session = Arc::new(Session::from(*stream));
                (ReadHalf::Tls(session.clone()), WriteHalf::Tls(session))
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            // Only now a client may learn why the server rejected its certificate.
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buffer).map_err(advised),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(Socket, self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Socket, self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Socket, self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(Socket, self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[derive(Debug)]
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(Arc<Session>),
}

impl ReadHalf {
    pub(super) async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            ReadHalf::Tcp(half) => half.read_buf(buffer).await,
            ReadHalf::Unix(half) => half.read_buf(buffer).await,
            ReadHalf::Tls(session) => session.read(buffer).await,
        }
    }
}

#[derive(Debug)]
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(Arc<Session>),
}

impl WriteHalf {
    pub(super) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            WriteHalf::Tcp(half) => half.try_write_vectored(slices),
            WriteHalf::Unix(half) => half.try_write_vectored(slices),
            WriteHalf::Tls(session) => session.try_write(slices),
        }
    }

    /// Sends buffered bytes: only TLS buffers any.
    pub(super) fn try_flush(&self) -> io::Result<()> {
        match self {
            WriteHalf::Tcp(_) | WriteHalf::Unix(_) => Ok(()),
            WriteHalf::Tls(session) => session.try_flush(),
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        each!(WriteHalf, self, half => half.writable().await)
    }

    /// Closes both directions now, even if another half is still held.
    pub(super) fn shutdown(&self) {
        // Shutting down a socket that the peer already closed fails, which is not worth reporting.
        let _ = match self {
            WriteHalf::Tcp(half) => {
                let stream: &TcpStream = half.as_ref();
                SockRef::from(stream).shutdown(std::net::Shutdown::Both)
            }
            WriteHalf::Unix(half) => {
                let stream: &UnixStream = half.as_ref();
                SockRef::from(stream).shutdown(std::net::Shutdown::Both)
            }
            WriteHalf::Tls(session) => {
                session.shutdown();
                Ok(())
            }
        };
    }
}
