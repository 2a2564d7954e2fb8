//! Who spoke TLS, and who did not, under the mode that takes either.
//!
//! A server that does not is not asked again at once, as each attempt costs it a connection; and one that did must go on, or
//! whoever stands between could make it speak plain. Both are forgotten after a while: a server may be brought up to TLS, and
//! another one get its address.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

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
pub(super) struct Memory(Mutex<HashMap<String, (Speech, Instant)>>);

impl Memory {
    pub(super) fn of(&self, server: &str) -> Option<Speech> {
        let (known, since) = *self.0.lock().get(server)?;
        (since.elapsed() < known.lasts()).then_some(known)
    }

    /// Remembers how a server speaks. Returns whether that is news.
    pub(super) fn note(&self, server: &str, known: Speech) -> bool {
        let mut servers = self.0.lock();
        let now = Instant::now();
        if !servers.contains_key(server) && servers.len() >= MOST {
            servers.retain(|_, (known, since)| since.elapsed() < known.lasts());
            let oldest = servers.iter().min_by_key(|(_, (_, since))| *since).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest.filter(|_| servers.len() >= MOST) {
                servers.remove(&oldest);
            }
        }
        let before = servers.insert(server.to_owned(), (known, now));
        before.is_none_or(|(before, since)| before != known || since.elapsed() >= known.lasts() * 2)
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
}
