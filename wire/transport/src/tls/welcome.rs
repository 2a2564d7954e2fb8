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

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::handle::Charter;
use super::{Mode, advised};
use crate::frames::Socket;

const HANDSHAKE: u8 = 0x16;

/// Time of a handshake while others wait for their turn. Clients that stall would otherwise keep all others out, at each
/// address.
const TURN: Duration = Duration::from_secs(1);

const WORDS: &str = "this port requires TLS: use https:// (grpcs://, frames+tls://)";

/// The start of HTTP/2 without TLS.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// INADEQUATE_SECURITY of HTTP/2.
const INADEQUATE: u32 = 0xc;

/// Time and bytes for which the client is read after the response.
const PATIENCE: Duration = Duration::from_secs(1);
const HEARD: usize = 256 << 10;

/// Prepares the connections of a listener; cheap to clone. The default passes all connections through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Welcome(pub(super) Option<Arc<Charter>>);

impl Welcome {
    /// The connection after its handshake. On an error the client has been informed, if possible.
    pub(crate) async fn greet(&self, socket: Socket) -> io::Result<Socket> {
        let (Some(charter), Socket::Tcp(_)) = (&self.0, &socket) else { return Ok(socket) };
        let Socket::Tcp(stream) = socket else { return Ok(socket) };
        let from = stream.peer_addr();
        // The state of a handshake is some kilobytes, too much for every connection's task.
        let agreed = Box::pin(agree(charter, stream));
        let greeted =
            tokio::time::timeout(charter.config.handshake_timeout, agreed).await.unwrap_or_else(|_| {
                let words = "the TLS handshake timed out";
                Err(io::Error::new(io::ErrorKind::TimedOut, words))
            });
        note(charter, &greeted, from);
        greeted
    }
}

fn note(charter: &Charter, greeted: &io::Result<Socket>, from: io::Result<SocketAddr>) {
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

async fn agree(charter: &Charter, socket: TcpStream) -> io::Result<Socket> {
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if first != [HANDSHAKE] {
        if charter.config.mode < Mode::Require {
            return Ok(Socket::Tcp(socket));
        }
        return Err(refuse_plain(socket).await);
    }
    let identity = charter.identity();
    let config = identity.servers.clone();
    let config = config.ok_or_else(|| io::Error::other("tls.certificate is not set"))?;
    let turn = charter.handshakes.acquire().await.map_err(io::Error::other)?;
    let mut accepting = pin!(TlsAcceptor::from(config).accept(socket).into_fallible());
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
        Ok(stream) => Ok(Socket::Tls(Box::new(stream.into()))),
        Err((error, stream)) => {
            // The caller may not have read the alert yet.
            linger(stream).await;
            Err(advised(error))
        }
    }
}

/// Tells users who forgot the `s` of `https`. Returns the error to log.
async fn refuse_plain(mut stream: TcpStream) -> io::Error {
    match tell(&mut stream).await {
        Ok(()) => {
            linger(stream).await;
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the client does not speak TLS, and tls.mode is require",
            )
        }
        Err(error) => error,
    }
}

async fn tell(stream: &mut TcpStream) -> io::Result<()> {
    let mut begin = [0; PREFACE.len()];
    let seen = stream.peek(&mut begin).await?;
    let answer = if PREFACE.starts_with(&begin[..seen]) { goaway() } else { bad_request() };
    stream.write_all(&answer).await
}

/// Closes a connection after its client had time to read the response: closing with unread data would reset it earlier.
async fn linger(mut stream: TcpStream) {
    let end = async {
        stream.shutdown().await?;
        let (mut heard, mut buffer) = (0, [0; 4096]);
        while heard < HEARD {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => heard += read,
            }
        }
        Ok::<(), io::Error>(())
    };
    // A client that disconnects earlier has read the response.
    let _ = tokio::time::timeout(PATIENCE, end).await;
}

fn bad_request() -> Vec<u8> {
    let body = format!("{{\"error\":\"{WORDS}\"}}");
    let head =
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
    format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Empty settings, then GOAWAY with the message as debug data.
fn goaway() -> Vec<u8> {
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = (8 + WORDS.len()) as u32;
    frames.extend_from_slice(&length.to_be_bytes()[1..]);
    frames.extend([7, 0, 0, 0, 0, 0]);
    frames.extend(0u32.to_be_bytes());
    frames.extend(INADEQUATE.to_be_bytes());
    frames.extend(WORDS.as_bytes());
    frames
}
