//! What stands before a listener: whether a connection speaks TLS, and the handshake if it does.
//!
//! A record of a handshake begins with a byte that begins nothing else spoken here, so one port takes both while a fleet
//! changes over. The byte is looked at and left where it is: plain connections lose nothing by it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::ServerConfig;
use tokio::net::TcpStream;

use super::handle::Held;
use super::{Mode, Stream, refusal};
use crate::frames::Socket;

/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// What is spoken inside of TLS, as both sides tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.1 and nothing else.
    Http1,
    /// HTTP/2. A listener takes HTTP/1.1 beside it.
    Http2,
}

/// Welcomes the connections of a listener; cheap to clone. The default lets everyone through as they are.
#[derive(Clone, Debug)]
pub(crate) struct Welcome {
    held: Option<Arc<Held>>,
    spoken: Spoken,
}

impl Default for Welcome {
    fn default() -> Self {
        Self { held: None, spoken: Spoken::Http2 }
    }
}

impl Welcome {
    pub(super) fn new(held: Option<Arc<Held>>, spoken: Spoken) -> Self {
        Self { held, spoken }
    }

    /// Whether connections are served as they come.
    pub(crate) fn is_plain(&self) -> bool {
        self.held.is_none()
    }

    /// The connection as it is to be served. An error has been told where it should be.
    pub(crate) async fn greet(&self, socket: Socket) -> io::Result<Socket> {
        let (Some(held), Socket::Tcp(_)) = (&self.held, &socket) else { return Ok(socket) };
        let Socket::Tcp(stream) = socket else { return Ok(socket) };
        let from = stream.peer_addr();
        let greeted =
            match tokio::time::timeout(held.config.handshake_timeout, self.agree(held, stream)).await {
                Ok(greeted) => greeted,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "nothing was agreed upon within tls.handshake_timeout_ms",
                )),
            };
        let counts = &held.counts;
        match &greeted {
            Ok(Socket::Tls(_)) => counts.secured.fetch_add(1, Ordering::Relaxed),
            Ok(_) => counts.plain.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                let from = from.map(|from| from.to_string()).unwrap_or_default();
                let refused = counts.refused.fetch_add(1, Ordering::Relaxed);
                // Whoever likes could fill the log: the first ones tell, the metric counts the others.
                match refused.is_power_of_two() || refused < 10 {
                    true => {
                        tracing::warn!(from, %error, refused = refused + 1, "TLS: a connection was refused")
                    }
                    false => tracing::debug!(from, %error, "TLS: a connection was refused"),
                }
                refused
            }
        };
        greeted
    }

    async fn agree(&self, held: &Held, stream: TcpStream) -> io::Result<Socket> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it was closed before anything was said",
            ));
        }
        if first != [HANDSHAKE] {
            if held.config.mode < Mode::Require {
                return Ok(Socket::Tcp(stream));
            }
            return Err(refusal::of_plain(stream).await);
        }
        let _turn = held.handshakes.acquire().await.map_err(io::Error::other)?;
        let config = self.config(held)?;
        // The state of a handshake is some kilobytes: not in every connection's task.
        let stream = Box::pin(Stream::accept(config, stream)).await?;
        Ok(Socket::Tls(Box::new(stream)))
    }

    fn config(&self, held: &Held) -> io::Result<Arc<ServerConfig>> {
        let identity = held.identity();
        let servers =
            identity.servers.as_ref().ok_or_else(|| io::Error::other("there is no tls.certificate"))?;
        Ok(match self.spoken {
            Spoken::Http1 => servers.http1.clone(),
            Spoken::Http2 => servers.both.clone(),
        })
    }
}
