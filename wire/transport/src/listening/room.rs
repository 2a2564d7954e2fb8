//! Places of connections, and the choice of the connection to evict when all places are taken.
//!
//! A connection holds a [`Place`] from before its first byte until it ends. When a new connection finds no place, the
//! room evicts one without a request in progress. The order is: connections that sent nothing for 100 ms; connections
//! that sent no whole request for 1 s; the connection that has been idle for longest; the connection whose response has
//! been unread for longest, if for 2 s. A connection with a request in progress is never evicted. So silent clients
//! delay others by a fraction of a second, however many they are, and clients that never read delay others by 2 s.
//!
//! The choice samples [`SAMPLE`] connections, each time another part of the room, because a flood of connections must
//! not cost a walk through thousands of them. In smaller rooms the choice is exact.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::activity::Activity;

/// Connections that one choice samples.
const SAMPLE: usize = 64;

/// Time until a new connection that found none to evict tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// Shortest time between two log lines about a full room.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Places of connections.
#[derive(Debug)]
pub struct Room {
    most: usize,
    /// The setting or constant that limits it, for the log.
    bound: &'static str,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    connections: Slab<Arc<Activity>>,
    /// Start of the next sample.
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
    /// A room with so many places. `bound` names their limit, for operators.
    pub fn new(most: usize, bound: &'static str) -> Arc<Self> {
        Arc::new(Self { most, bound, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place as soon as one is free. If none is, evicts a connection without a request that has been idle for
    /// `spare`.
    pub(super) async fn enter(self: &Arc<Self>, activity: &Arc<Activity>, spare: Duration) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_enter(activity) {
                return place;
            }
            if self.may_warn() {
                let (connections, bound) = (self.most, self.bound);
                tracing::warn!(
                    code = %parm_protocol::StableCode::ConnectionLimit,
                    connections,
                    bound,
                    "connection limit reached: closing the connection that has been without a request for longest"
                );
            }
            self.make(spare);
            // Connections that close are noticed immediately, connections that become idle at the next attempt.
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

    /// Whether the log may get a line about missing places: clients without a key must not fill it.
    pub(super) fn may_warn(&self) -> bool {
        let (now, mut taken) = (Instant::now(), self.taken.lock());
        let due = taken.warned.is_none_or(|last| now.duration_since(last) >= WARN_EVERY);
        if due {
            taken.warned = Some(now);
        }
        due
    }

    /// Tells a connection to close, if one can be evicted.
    pub(super) fn make(&self, spare: Duration) {
        let mut taken = self.taken.lock();
        let from = taken.next.min(taken.connections.capacity());
        let around =
            || taken.connections.iter().skip_while(|(key, _)| *key < from).chain(taken.connections.iter());
        let seen = around().take(SAMPLE.min(taken.connections.len()));
        let (mut chosen, mut last) = (None, 0);
        for (key, activity) in seen {
            last = key;
            // A connection that was told to close makes room soon.
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
