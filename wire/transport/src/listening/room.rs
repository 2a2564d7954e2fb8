//! Places of connections, and the choice of the connection that makes room when all are taken.
//!
//! A connection holds a [`Place`] from before its first byte until it ends. When a new connection finds no place, the room
//! closes one that has no request in progress: first one that has sent nothing for a tenth of a second, then one that has sent
//! no whole request for a second, then the one that has been idle for longest, otherwise the one whose answer has not been taken
//! for longest, and for two seconds at least. A connection with a request in progress is never closed for another. So clients
//! that send nothing delay others by a fraction of a second, however many they are and however often they connect, and clients
//! that ask and take no answer delay others by two seconds.
//!
//! The choice looks at [`SAMPLE`] connections, a different part of the room each time: a flood of connections must not cost a
//! walk through thousands of them for each. In rooms of no more places than that the choice is exact.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::activity::Activity;

/// Connections that one choice looks at.
const SAMPLE: usize = 64;

/// Time after which a new connection that found none to close looks again.
const AGAIN: Duration = Duration::from_millis(20);

/// Shortest time between two log lines about a full room.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Places of connections.
#[derive(Debug)]
pub struct Room {
    most: usize,
    /// The setting or the constant that bounds it, for the log.
    bound: &'static str,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    connections: Slab<Arc<Activity>>,
    /// Where the next choice begins to look.
    next: usize,
    warned: Option<Instant>,
}

/// A connection's place; dropping the last clone gives it back.
#[derive(Clone, Debug)]
pub struct Place(#[allow(dead_code)] Arc<Seat>);

#[derive(Debug)]
struct Seat {
    room: Arc<Room>,
    key: usize,
}

impl Room {
    /// Room for so many connections. `bound` names what bounds it, for operators.
    pub fn new(most: usize, bound: &'static str) -> Arc<Self> {
        Arc::new(Self { most, bound, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place, as soon as there is one. Closes a connection without a request where there is none, if it has been idle
    /// for `spare`.
    pub(super) async fn enter(self: &Arc<Self>, activity: &Arc<Activity>, spare: Duration) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_enter(activity) {
                return place;
            }
            if self.may_warn() {
                let (connections, bound) = (self.most, self.bound);
                tracing::warn!(
                    connections,
                    bound,
                    "no place for another connection: the one that has been without a request for longest is closed"
                );
            }
            self.make(spare);
            // Connections that are closed by themselves are noticed at once, those that become idle when it looks again.
            let _ = tokio::time::timeout(AGAIN, freed).await;
        }
    }

    fn try_enter(self: &Arc<Self>, activity: &Arc<Activity>) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.connections.len() >= self.most {
            return None;
        }
        let key = taken.connections.insert(activity.clone());
        Some(Place(Arc::new(Seat { room: self.clone(), key })))
    }

    /// Whether a line about missing places may go into the log: clients without a key must not fill it.
    pub(super) fn may_warn(&self) -> bool {
        let (now, mut taken) = (Instant::now(), self.taken.lock());
        let due = taken.warned.is_none_or(|last| now.duration_since(last) >= WARN_EVERY);
        if due {
            taken.warned = Some(now);
        }
        due
    }

    /// Asks a connection to close, if one can: it makes room when it has.
    pub(super) fn make(&self, spare: Duration) {
        let mut taken = self.taken.lock();
        let from = taken.next.min(taken.connections.capacity());
        let around =
            || taken.connections.iter().skip_while(|(key, _)| *key < from).chain(taken.connections.iter());
        let seen = around().take(SAMPLE.min(taken.connections.len()));
        let (mut chosen, mut last) = (None, 0);
        for (key, activity) in seen {
            last = key;
            // One that is to close already makes room before long.
            let Some(quiet) = activity.quiet(spare).filter(|_| !activity.is_evicting()) else { continue };
            if chosen.as_ref().is_none_or(|(longest, _)| quiet > *longest) {
                chosen = Some((quiet, activity.clone()));
            }
        }
        taken.next = last + 1;
        drop(taken);
        if let Some((_, activity)) = chosen {
            activity.evict();
        }
    }

    /// Connections that have a place.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().connections.len()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.taken.lock().connections.remove(self.key);
        self.room.freed.notify_one();
    }
}
