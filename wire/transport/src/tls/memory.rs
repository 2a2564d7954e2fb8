//! Servers that spoke TLS and servers that did not, for the mode `prefer`.
//!
//! A server without TLS is not tried again immediately, as each attempt costs it a connection. A server with TLS must
//! keep using it, otherwise a third party could force plain text. Both entries expire, because a server may be
//! upgraded, and another server may get its address. An open TLS connection is proof while it lasts, so the timeout
//! starts at the end of a server's last connection, not at its handshake.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::handle::Charter;

/// Time without TLS until it is tried again.
const PLAIN: Duration = Duration::from_secs(60);
/// Time for which a server that used TLS must keep using it.
const SECURED: Duration = Duration::from_secs(3600);
/// Most servers remembered.
const MOST: usize = 16_384;

/// The last known protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Secured,
    Plain,
}

/// The known servers, by host and port.
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

    /// Records a server's protocol. Returns whether it changed or was unknown.
    pub(super) fn note(&self, server: &str, speech: Speech) -> bool {
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
