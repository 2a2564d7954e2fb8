//! A listening socket, TCP or Unix, that yields plain sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::Address;
use super::auth::Reach;
use crate::Error;
use crate::frames::Socket;

/// How long to wait when the process is out of file descriptors: a connection has to end before another can begin.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Where connections come from.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) async fn tcp(Address(address): Address) -> Result<Self, Error> {
        let bound = TcpListener::bind(address).await;
        bound.map(Listener::Tcp).map_err(|error| refused(address, &error))
    }

    /// Listens at a path. A socket that nobody listens on any more is in the way and is replaced; any other file stays.
    pub(super) fn unix(path: &Path) -> Result<Self, Error> {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
            std::fs::remove_file(path).map_err(|error| refused(path.display(), &error))?;
        }
        let bound = UnixListener::bind(path);
        bound
            .map(|listener| Listener::Unix(listener, path.to_owned()))
            .map_err(|error| refused(path.display(), &error))
    }

    /// The bound TCP address.
    pub(super) fn address(&self) -> Result<SocketAddr, Error> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map_err(|error| refused("?", &error)),
            Listener::Unix(_, path) => Err(refused(path.display(), &"a Unix socket has no port")),
        }
    }

    /// Who can reach it. Where that cannot be told, everyone can.
    pub(super) fn reach(&self) -> Reach {
        match self {
            Listener::Unix(..) => Reach::Local,
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) if address.ip().to_canonical().is_loopback() => Reach::Local,
                _ => Reach::Open,
            },
        }
    }

    /// The next connection. Errors of single connections are passed over.
    pub(super) async fn accept(&self) -> Socket {
        loop {
            let accepted: io::Result<Socket> = match self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    // Answers are written whole; waiting for more to send with them only adds delay.
                    let _ = stream.set_nodelay(true);
                    Socket::Tcp(stream)
                }),
                Listener::Unix(listener, _) => {
                    listener.accept().await.map(|(stream, _): (UnixStream, _)| Socket::Unix(stream))
                }
            };
            match accepted {
                Ok(socket) => return socket,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection: raise the limit of open files");
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("?"),
            },
            Listener::Unix(_, path) => path.display().fmt(f),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Ours, as binding would have failed otherwise; a leftover would only puzzle people.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn refused(address: impl std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
    Error::Listen { address: address.to_string(), message: error.to_string() }
}
