//! TLS on a TCP connection, as a byte stream.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Connection, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::advice;
use super::memory::Lasting;

/// A connection after its TLS handshake. Errors carry advice.
#[derive(Debug)]
pub struct Stream(TlsStream<TcpStream>, Option<Lasting>);

impl Stream {
    /// Performs the handshake with a caller. After a rejection the caller may not have read the alert yet.
    pub(super) async fn accept(
        config: Arc<ServerConfig>,
        stream: TcpStream,
    ) -> Result<Self, (io::Error, TcpStream)> {
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => Ok(Self(stream.into(), None)),
            Err((error, stream)) => Err((advice::advised(error), stream)),
        }
    }

    /// Performs the handshake with a server. The error carries no advice.
    pub(super) async fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<Self> {
        TlsConnector::from(config).connect(name, stream).await.map(|stream| Self(stream.into(), None))
    }

    /// The other side's address.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }

    /// Keeps the server remembered while this connection lasts.
    pub(super) fn remembered(mut self, lasting: Lasting) -> Self {
        self.1 = Some(lasting);
        self
    }

    /// The socket, the TLS state, and the guard that must live as long as both.
    pub(super) fn into_parts(self) -> (TcpStream, Connection, Option<Lasting>) {
        let (socket, connection) = match self.0 {
            TlsStream::Client(stream) => {
                let (stream, connection) = stream.into_inner();
                (stream, connection.into())
            }
            TlsStream::Server(stream) => {
                let (stream, connection) = stream.into_inner();
                (stream, connection.into())
            }
        };
        (socket, connection, self.1)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer).map_err(advice::advised)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
