//! Outgoing connections: chooses TLS or plain text, with a fallback in the mode `prefer`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parm_protocol::Error;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use super::handle::Charter;
use super::memory::{Lasting, Speech};
use super::{Mode, Spoken, Stream, Tls, advice};
use crate::frames::Socket;

/// The way to connect to a server; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Outgoing(Option<Wanted>);

/// TLS towards one server.
#[derive(Clone, Debug)]
struct Wanted {
    charter: Arc<Charter>,
    name: ServerName<'static>,
    spoken: Spoken,
    /// Whether plain text is allowed if the server does not speak TLS.
    or_plain: bool,
}

impl Tls {
    /// The way to connect to a server at `HOST:PORT`; `must` if its address requires TLS.
    pub fn outgoing(&self, authority: &str, must: bool, spoken: Spoken) -> Result<Outgoing, Error> {
        let mode = self.0.as_ref().map_or(Mode::Off, |charter| charter.config.mode);
        if !must && mode < Mode::Prefer {
            return Ok(Outgoing(None));
        }
        let wrong = |reason: String| Error::Tls { reason: format!("{authority}: {reason}") };
        let charter = self.0.clone().filter(|charter| charter.identity().clients.is_some());
        let charter = charter.ok_or_else(|| {
            wrong("TLS requires the server's certificate authority: name its file with tls.ca or --ca".into())
        })?;
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| {
            wrong(
                "its host is not a name that a certificate can have: use a DNS name or an IP address".into(),
            )
        })?;
        let or_plain = !must && mode == Mode::Prefer;
        Ok(Outgoing(Some(Wanted { charter, name, spoken, or_plain })))
    }
}

impl Outgoing {
    /// Whether the connection is always TLS.
    pub fn is_secured(&self) -> bool {
        self.0.as_ref().is_some_and(|wanted| !wanted.or_plain)
    }

    /// Connects to `HOST:PORT`. `patience` is the timeout of the caller.
    pub async fn dial(&self, authority: &str, patience: Duration) -> io::Result<Socket> {
        let Some(wanted) = &self.0 else { return plain(authority).await };
        let memory = &wanted.charter.memory;
        let known = memory.of(authority);
        if wanted.or_plain && known == Some(Speech::Plain) {
            return plain(authority).await;
        }
        let may_fall_back = wanted.or_plain && known != Some(Speech::Secured);
        let agreed = wanted.agree(tcp(authority).await?);
        // A plain-text server may wait for the end of a line that never comes, and send nothing.
        let agreed = match may_fall_back {
            false => agreed.await,
            true => tokio::time::timeout(patience / 2, agreed).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server sent nothing"))
            }),
        };
        match agreed {
            Ok(stream) => {
                let lasting = Lasting::new(wanted.charter.clone(), authority);
                Ok(Socket::Tls(Box::new(stream.remembered(lasting))))
            }
            Err(error) if may_fall_back && advice::speaks_plain(&error) => {
                wanted.charter.counts.fallbacks.fetch_add(1, Ordering::Relaxed);
                if memory.note(authority, Speech::Plain) {
                    tracing::warn!(
                        server = authority,
                        "the server does not speak TLS: falling back to plain text (tls.mode prefer)"
                    );
                }
                plain(authority).await
            }
            Err(error) if wanted.or_plain && advice::speaks_plain(&error) => Err(io::Error::new(
                error.kind(),
                "the server spoke TLS before and stopped: to return to plain text, set tls.mode = \"allow\" here first",
            )),
            Err(error) if advice::of(&error).is_none() && advice::speaks_plain(&error) => {
                Err(io::Error::new(
                    error.kind(),
                    format!(
                        "the server closed the connection during the TLS handshake ({error}): check whether it speaks TLS"
                    ),
                ))
            }
            Err(error) => Err(advice::advised(error)),
        }
    }
}

impl Wanted {
    async fn agree(&self, stream: TcpStream) -> io::Result<Stream> {
        let config = self.config()?;
        Box::pin(Stream::connect(config, self.name.clone(), stream)).await
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let identity = self.charter.identity();
        let clients = identity.clients.as_ref().ok_or_else(|| io::Error::other("tls.ca is not set"))?;
        Ok(match self.spoken {
            Spoken::Http1 => clients.http1.clone(),
            Spoken::Http2 => clients.http2.clone(),
        })
    }
}

async fn plain(authority: &str) -> io::Result<Socket> {
    tcp(authority).await.map(Socket::Tcp)
}

async fn tcp(authority: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(authority).await?;
    // Requests are written whole; waiting for more data only adds delay.
    stream.set_nodelay(true)?;
    Ok(stream)
}
