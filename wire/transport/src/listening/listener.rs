//! A listening socket, TCP or Unix, that yields plain sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use socket2::SockRef;

use super::ConnectionLimits;
use super::room::Room;
use crate::frames::Socket;

/// Pause when the process is out of file descriptors: a connection has to end before another can begin.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// A source of connections.
#[derive(Debug)]
pub struct Listener(Bound);

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at an address; port 0 selects a free one.
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(|listener| Self(Bound::Tcp(listener)))
    }

    /// Listens at a path. A stale socket is replaced; any other file stays.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
            std::fs::remove_file(path)?;
        }
        UnixListener::bind(path).map(|listener| Self(Bound::Unix(listener, path.to_owned())))
    }

    /// The bound TCP address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Bound::Tcp(listener) => listener.local_addr(),
            Bound::Unix(..) => Err(io::Error::new(io::ErrorKind::Unsupported, "a Unix socket has no port")),
        }
    }

    /// Whether only processes of this machine can reach it; false if that is unknown.
    pub(crate) fn is_local(&self) -> bool {
        match &self.0 {
            Bound::Unix(..) => true,
            Bound::Tcp(listener) => {
                listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
            }
        }
    }

    /// The next connection. Errors of single connections are ignored. If the process has no file descriptor left, a
    /// connection without a request is evicted.
    pub(super) async fn accept(&self, room: &Room, limits: &ConnectionLimits) -> Socket {
        loop {
            match self.accept_one(limits).await {
                Ok(socket) => return socket,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if room.may_warn() {
                        tracing::warn!(code = %parm_protocol::StableCode::ConnectionLimit, %error, "cannot accept a connection: raise the limit of open files");
                    }
                    room.make(limits.spare);
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
        }
    }

    async fn accept_one(&self, limits: &ConnectionLimits) -> io::Result<Socket> {
        match &self.0 {
            Bound::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Responses are written whole; waiting for more data only adds delay.
                let _ = stream.set_nodelay(true);
                if let Some(bytes) = limits.send_buffer {
                    let _ = SockRef::from(&stream).set_send_buffer_size(bytes);
                }
                Ok(Socket::Tcp(stream))
            }
            Bound::Unix(listener, _) => {
                let (stream, _): (UnixStream, _) = listener.accept().await?;
                Ok(Socket::Unix(stream))
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Bound::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("?"),
            },
            Bound::Unix(_, path) => path.display().fmt(f),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix(_, path) = &self.0 {
            // Bound by this process, otherwise binding would have failed. A leftover file would only confuse people.
            let _ = std::fs::remove_file(path);
        }
    }
}
