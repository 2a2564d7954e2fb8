//! TLS for frames: one side reads while others write, from whichever thread they are on, without waiting for one another
//! longer than a record takes.
//!
//! Frames write through a shared reference, at once, and learn where the socket takes no more. So the state of TLS stands
//! beside the socket under a lock that is never held while anybody waits. Bytes that are encrypted and that the socket did not
//! take stay in it; whoever writes next sends them first, and nothing counts as written before they are out.

use std::io::{self, BufRead, IoSlice, Read, Write};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustls::Connection;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::memory::Lasting;
use super::{Stream, advice};

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    socket: TcpStream,
    connection: Mutex<Connection>,
    _lasting: Option<Lasting>,
}

/// The socket without waiting: what it cannot do at once would block.
struct AtOnce<'a>(&'a TcpStream);

impl From<Stream> for Session {
    fn from(stream: Stream) -> Self {
        let (socket, connection, lasting) = stream.into_parts();
        Self { socket, connection: Mutex::new(connection), _lasting: lasting }
    }
}

impl Session {
    /// Reads what is there into the room that the buffer has; 0 where the peer closed.
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
                // The peer is told why, if it can be.
                let _ = send(&mut connection, &self.socket);
                return Err(advice::broken(&error));
            }
        }
    }

    /// Writes what can be written now. What is taken may not have left: see [`try_flush`](Self::try_flush).
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        send(&mut connection, &self.socket)?;
        let taken = connection.writer().write_vectored(slices)?;
        match send(&mut connection, &self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what was taken and has not left.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        send(&mut self.connection.lock(), &self.socket)
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Says goodbye, and ends both directions now.
    pub(crate) fn shutdown(&self) {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        // Where the socket takes no more, the end of the connection is goodbye enough.
        let _ = send(&mut connection, &self.socket);
        let _ = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both);
    }
}

/// Sends what is encrypted, all of it.
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
