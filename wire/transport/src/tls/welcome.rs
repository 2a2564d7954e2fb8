//! Accepted connections: detects TLS, and performs the handshake.
//!
//! The first byte of a TLS handshake starts no other protocol here, so one port serves both while a fleet changes over.
//! The byte is only peeked: plain connections are not affected.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;

use super::handle::Charter;
use super::{Mode, Stream, refusal};
use crate::frames::Socket;

/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// Time of a handshake while others wait for their turn. Clients that stall would otherwise keep all others out, at each
/// address.
const TURN: Duration = Duration::from_secs(1);

/// The protocol inside of TLS, as both sides negotiate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2. A listener accepts HTTP/1.1 as well.
    Http2,
}

/// Prepares the connections of a listener; cheap to clone. The default passes all connections through.
#[derive(Clone, Debug)]
pub(crate) struct Welcome {
    charter: Option<Arc<Charter>>,
    spoken: Spoken,
}

impl Default for Welcome {
    fn default() -> Self {
        Self { charter: None, spoken: Spoken::Http2 }
    }
}

impl Welcome {
    pub(super) fn new(charter: Option<Arc<Charter>>, spoken: Spoken) -> Self {
        Self { charter, spoken }
    }

    /// The connection after its handshake. On an error the client has been informed, if possible.
    pub(crate) async fn greet(&self, socket: Socket) -> io::Result<Socket> {
        let (Some(charter), Socket::Tcp(_)) = (&self.charter, &socket) else { return Ok(socket) };
        let Socket::Tcp(stream) = socket else { return Ok(socket) };
        let from = stream.peer_addr();
        // The state of a handshake is some kilobytes, too much for every connection's task.
        let agreed = Box::pin(self.agree(charter, stream));
        let greeted =
            tokio::time::timeout(charter.config.handshake_timeout, agreed).await.unwrap_or_else(|_| {
                let words = "the TLS handshake timed out";
                Err(io::Error::new(io::ErrorKind::TimedOut, words))
            });
        self.note(charter, &greeted, from);
        greeted
    }

    fn note(&self, charter: &Charter, greeted: &io::Result<Socket>, from: io::Result<SocketAddr>) {
        let counts = &charter.counts;
        let one_more = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed) + 1;
        match greeted {
            Ok(Socket::Tls(_)) => {
                one_more(&counts.secured);
            }
            Ok(_) => {
                one_more(&counts.plain);
            }
            // A probe whether the port is open.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let from = from.map(|from| from.to_string()).unwrap_or_default();
                let refused = one_more(&counts.refused);
                // Clients could fill the log: the first rejections are logged, the metric counts the others.
                if refused <= 10 || refused.is_power_of_two() {
                    tracing::warn!(code = %parm_protocol::StableCode::TlsHandshake, from, %error, refused, "TLS: connection rejected");
                } else {
                    tracing::debug!(from, %error, refused, "TLS: connection rejected");
                }
            }
        }
    }

    async fn agree(&self, charter: &Charter, stream: TcpStream) -> io::Result<Socket> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if first != [HANDSHAKE] {
            if charter.config.mode < Mode::Require {
                return Ok(Socket::Tcp(stream));
            }
            return Err(refusal::of_plain(stream).await);
        }
        let turn = charter.handshakes.acquire().await.map_err(io::Error::other)?;
        let mut accepting = pin!(Stream::accept(self.config(charter)?, stream));
        let agreed = loop {
            tokio::select! {
                biased;
                agreed = accepting.as_mut() => break agreed,
                () = tokio::time::sleep(TURN) => {
                    if charter.handshakes.available_permits() == 0 {
                        let words = "the TLS handshake took too long, and others wait";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                    }
                }
            }
        };
        drop(turn);
        match agreed {
            Ok(stream) => Ok(Socket::Tls(Box::new(stream))),
            Err((error, stream)) => {
                refusal::linger(stream).await;
                Err(error)
            }
        }
    }

    fn config(&self, charter: &Charter) -> io::Result<Arc<ServerConfig>> {
        let identity = charter.identity();
        let servers =
            identity.servers.as_ref().ok_or_else(|| io::Error::other("tls.certificate is not set"))?;
        Ok(match self.spoken {
            Spoken::Http1 => servers.http1.clone(),
            Spoken::Http2 => servers.both.clone(),
        })
    }
}
