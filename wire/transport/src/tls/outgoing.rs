//! Outgoing connections: TLS if the address or the mode asks for it, plain text otherwise, and never the one for the other.

use std::io;
use std::sync::Arc;

use parm_protocol::Error;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::handle::Charter;
use super::identity::{HTTP1, HTTP2};
use super::{Mode, Stream, Tls, advice};
use crate::frames::Socket;

/// The protocol inside of TLS towards a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The way to connect to a server; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Outgoing(Option<Wanted>);

/// TLS towards one server.
#[derive(Clone, Debug)]
struct Wanted {
    charter: Arc<Charter>,
    name: ServerName<'static>,
    spoken: Spoken,
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
        Ok(Outgoing(Some(Wanted { charter, name, spoken })))
    }
}

impl Outgoing {
    /// Whether the connection is TLS.
    pub fn is_secured(&self) -> bool {
        self.0.is_some()
    }

    /// Connects to `HOST:PORT`.
    pub async fn dial(&self, authority: &str) -> io::Result<Socket> {
        let stream = TcpStream::connect(authority).await?;
        // Requests are written whole; waiting for more data only adds delay.
        stream.set_nodelay(true)?;
        let Some(wanted) = &self.0 else { return Ok(stream.into()) };
        match wanted.agree(stream).await {
            Ok(stream) => Ok(Socket::Tls(Box::new(stream))),
            Err(error) if advice::closed_early(&error) => Err(io::Error::new(
                error.kind(),
                format!(
                    "the server closed the connection during the TLS handshake ({error}): check whether it speaks TLS"
                ),
            )),
            Err(error) => Err(advice::advised(error)),
        }
    }
}

impl Wanted {
    async fn agree(&self, socket: TcpStream) -> io::Result<Stream> {
        let identity = self.charter.identity();
        let clients = identity.clients.clone().ok_or_else(|| io::Error::other("tls.ca is not set"))?;
        let spoken = match self.spoken {
            Spoken::Http1 => HTTP1,
            Spoken::Http2 => HTTP2,
        };
        let connector = TlsConnector::from(clients);
        let agreed = connector.with_alpn(vec![spoken.to_vec()]).connect(self.name.clone(), socket);
        Box::pin(agreed).await.map(Stream::from)
    }
}
