//! Outgoing connections: chooses TLS or plain text, with a fallback in the mode `prefer`, which remembers the servers
//! that spoke TLS and those that did not.
//!
//! A server without TLS is not tried again immediately, as each attempt costs it a connection. A server with TLS must
//! keep using it, otherwise a third party could force plain text. Both entries expire, because a server may be
//! upgraded, and another server may get its address. An open TLS connection is proof while it lasts, so the timeout
//! starts at the end of a server's last connection, not at its handshake.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::Error;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::handle::Charter;
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
        let identity = self.charter.identity();
        let clients = identity.clients.as_ref().ok_or_else(|| io::Error::other("tls.ca is not set"))?;
        Box::pin(Stream::connect(clients.get(self.spoken), self.name.clone(), stream)).await
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

/// Time without TLS until it is tried again.
const PLAIN: Duration = Duration::from_secs(60);
/// Time for which a server that used TLS must keep using it.
const SECURED: Duration = Duration::from_secs(3600);
const MOST: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    Secured,
    Plain,
}

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, Remembered>>);

#[derive(Clone, Copy, Debug)]
struct Remembered {
    speech: Speech,
    since: Instant,
    /// Open TLS connections.
    secured: usize,
}

/// An open TLS connection. Its server is remembered while it lasts, and from its end on.
#[derive(Debug)]
pub(super) struct Lasting {
    charter: Arc<Charter>,
    server: String,
}

impl Lasting {
    fn new(charter: Arc<Charter>, server: &str) -> Self {
        charter.memory.count(server, |secured| secured + 1);
        Self { charter, server: server.to_owned() }
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.charter.memory.count(&self.server, |secured| secured.saturating_sub(1));
    }
}

impl Memory {
    fn of(&self, server: &str) -> Option<Speech> {
        self.0.lock().get(server)?.speech()
    }

    /// Records a server's protocol. Returns whether it changed or was unknown.
    fn note(&self, server: &str, speech: Speech) -> bool {
        let mut servers = self.0.lock();
        let secured = servers.get(server).map_or(0, |known| known.secured);
        let before = remember(&mut servers, server, Remembered { speech, since: Instant::now(), secured });
        before.is_none_or(|before| {
            before.speech != speech || before.since.elapsed() >= before.speech.lasts() * 2
        })
    }

    fn count(&self, server: &str, change: impl FnOnce(usize) -> usize) {
        let mut servers = self.0.lock();
        let secured = change(servers.get(server).map_or(0, |known| known.secured));
        remember(
            &mut servers,
            server,
            Remembered { speech: Speech::Secured, since: Instant::now(), secured },
        );
    }
}

/// Records an entry, and evicts the oldest if there are too many. Servers with open connections stay: the process's
/// sockets limit their number.
fn remember(
    servers: &mut HashMap<String, Remembered>,
    server: &str,
    known: Remembered,
) -> Option<Remembered> {
    if !servers.contains_key(server) && servers.len() >= MOST {
        servers.retain(|_, known| known.speech().is_some());
        let idle = servers.iter().filter(|(_, known)| known.secured == 0);
        let oldest = idle.min_by_key(|(_, known)| known.since).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest.filter(|_| servers.len() >= MOST) {
            servers.remove(&oldest);
        }
    }
    servers.insert(server.to_owned(), known)
}

impl Remembered {
    /// The server's protocol, unless the entry has expired.
    fn speech(&self) -> Option<Speech> {
        if self.secured > 0 {
            return Some(Speech::Secured);
        }
        (self.since.elapsed() < self.speech.lasts()).then_some(self.speech)
    }
}

impl Speech {
    const fn lasts(self) -> Duration {
        match self {
            Speech::Secured => SECURED,
            Speech::Plain => PLAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire_and_their_number_is_limited() {
        let memory = Memory::default();
        assert_eq!(memory.of("a"), None);
        assert!(memory.note("a", Speech::Plain));
        assert!(!memory.note("a", Speech::Plain));
        assert_eq!(memory.of("a"), Some(Speech::Plain));
        tokio::time::advance(PLAIN).await;
        assert_eq!(memory.of("a"), None);
        assert!(memory.note("a", Speech::Secured));
        tokio::time::advance(PLAIN).await;
        assert_eq!(memory.of("a"), Some(Speech::Secured));
        for number in 0..MOST {
            memory.note(&number.to_string(), Speech::Plain);
            tokio::time::advance(Duration::from_micros(1)).await;
        }
        assert_eq!(memory.0.lock().len(), MOST);
        assert_eq!((memory.of("a"), memory.of("0")), (None, Some(Speech::Plain)), "the oldest went");
    }

    #[tokio::test(start_paused = true)]
    async fn server_stays_secured_while_a_connection_lasts() {
        let memory = Memory::default();
        memory.count("a", |secured| secured + 1);
        memory.count("a", |secured| secured + 1);
        tokio::time::advance(SECURED * 20).await;
        assert_eq!(memory.of("a"), Some(Speech::Secured));
        for number in 0..MOST + 8 {
            memory.note(&number.to_string(), Speech::Plain);
        }
        assert_eq!(memory.of("a"), Some(Speech::Secured), "a full memory forgets no server with connections");
        memory.count("a", |secured| secured - 1);
        tokio::time::advance(SECURED * 20).await;
        assert_eq!(memory.of("a"), Some(Speech::Secured), "another connection lasts");
        memory.count("a", |secured| secured - 1);
        tokio::time::advance(SECURED - Duration::from_secs(1)).await;
        assert_eq!(memory.of("a"), Some(Speech::Secured), "the hour counts from the last connection's end");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.of("a"), None);
    }
}
