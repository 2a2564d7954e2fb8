//! Servers that spoke TLS and servers that did not, under the mode that takes either.
//!
//! A server that did not speak TLS is not asked again at once, as each attempt costs it a connection. A server that did must go
//! on, or a third party in between could make it speak plain. Both are forgotten after a while: a server may be brought up to
//! TLS, and another one get its address. A connection that speaks TLS is proof for as long as it lasts, so the time of a server
//! that speaks it counts from the end of its last connection, not from a handshake that may be days old.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::handle::Charter;

/// How long a server is spoken to in plain before TLS is tried again.
const PLAIN: Duration = Duration::from_secs(60);
/// How long a server that spoke TLS must go on to.
const SECURED: Duration = Duration::from_secs(3600);
/// Servers that are remembered.
const MOST: usize = 16_384;

/// What is known of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Secured,
    Plain,
}

/// What is known of servers, by host and port.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, Remembered>>);

#[derive(Clone, Copy, Debug)]
struct Remembered {
    speech: Speech,
    since: Instant,
    /// Connections that speak TLS at this moment.
    secured: usize,
}

/// A connection that speaks TLS. Its server is remembered as long as it lasts, and from its end on.
#[derive(Debug)]
pub(super) struct Lasting {
    charter: Arc<Charter>,
    server: String,
}

impl Lasting {
    /// Notes that a connection to `server` speaks TLS.
    pub(super) fn new(charter: Arc<Charter>, server: &str) -> Self {
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
    pub(super) fn of(&self, server: &str) -> Option<Speech> {
        self.0.lock().get(server)?.speech()
    }

    /// Remembers how a server speaks. Returns whether that is news.
    pub(super) fn note(&self, server: &str, speech: Speech) -> bool {
        let mut servers = self.0.lock();
        let secured = servers.get(server).map_or(0, |known| known.secured);
        let before = remember(&mut servers, server, Remembered { speech, since: Instant::now(), secured });
        before.is_none_or(|before| {
            before.speech != speech || before.since.elapsed() >= before.speech.lasts() * 2
        })
    }

    /// Notes that a connection which speaks TLS begins or ends.
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

/// Notes what is known now, and forgets the oldest server where there are too many. Servers with connections stay: they are no
/// more than this process has sockets.
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
    /// How the server speaks, as far as that still counts.
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
    async fn a_server_is_asked_again_after_a_while_and_the_number_of_servers_is_bounded() {
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
