//! TLS on a TCP connection, as a byte stream and, for frames, as a [`Session`]: one task reads while others write, on any
//! threads, without blocking.
//!
//! Frames write through a shared reference without blocking, and must learn when the socket is full. So the TLS state
//! is next to the socket, under a lock that is never held across an await. Encrypted bytes that the socket did not
//! accept stay in the state; the next writer sends them first, and bytes count as written only when they are out.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Connection, ServerConfig};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::advice;
use super::outgoing::Lasting;

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

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }

    /// Keeps the server remembered while this connection lasts.
    pub(super) fn remembered(mut self, lasting: Lasting) -> Self {
        self.1 = Some(lasting);
        self
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

#[derive(Debug)]
pub(crate) struct Session {
    socket: TcpStream,
    connection: Mutex<Connection>,
    _lasting: Option<Lasting>,
}

struct AtOnce<'a>(&'a TcpStream);

impl From<Stream> for Session {
    fn from(stream: Stream) -> Self {
        let Stream(stream, lasting) = stream;
        let (socket, connection) = match stream {
            TlsStream::Client(stream) => {
                let (socket, connection) = stream.into_inner();
                (socket, Connection::from(connection))
            }
            TlsStream::Server(stream) => {
                let (socket, connection) = stream.into_inner();
                (socket, connection.into())
            }
        };
        Self { socket, connection: Mutex::new(connection), _lasting: lasting }
    }
}

impl Session {
    /// Reads available bytes into the free capacity of the buffer; 0 if the peer closed.
    pub(crate) async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            if let Some(read) = self.read_now(buffer)? {
                return Ok(read);
            }
            self.socket.readable().await?;
        }
    }

    fn read_now(&self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        let mut connection = self.connection.lock();
        loop {
            let mut reader = connection.reader();
            match reader.fill_buf() {
                Ok(plain) => {
                    let read = plain.len().min(buffer.capacity() - buffer.len());
                    buffer.extend_from_slice(&plain[..read]);
                    reader.consume(read);
                    return Ok(Some(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match connection.read_tls(&mut AtOnce(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Err(error) = connection.process_new_packets() {
                // The peer receives the reason, if possible.
                let _ = send(&mut connection, &self.socket);
                return Err(advice::broken(&error));
            }
        }
    }

    /// Writes without blocking. Accepted bytes may not be sent yet: see [`try_flush`](Self::try_flush).
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        send(&mut connection, &self.socket)?;
        let taken = connection.writer().write_vectored(slices)?;
        match send(&mut connection, &self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    pub(crate) fn try_flush(&self) -> io::Result<()> {
        send(&mut self.connection.lock(), &self.socket)
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Sends close_notify, and closes both directions now.
    pub(crate) fn shutdown(&self) {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        // If the socket is full, the peer sees the end of the connection instead.
        let _ = send(&mut connection, &self.socket);
        let _ = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both);
    }
}

fn send(connection: &mut Connection, socket: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut AtOnce(socket)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Read for AtOnce<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
