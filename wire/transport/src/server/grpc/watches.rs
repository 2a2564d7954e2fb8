//! Bounds the health watches that are open at the same time, on a connection and on the server.
//!
//! A watch needs no key, lasts for as long as its client likes and takes about 7 KB. Without a bound, streams times connections
//! would be gigabytes. `Watches` gives each watch a place, which its stream holds until it ends.
//!
//! Choice: the first watch of a connection always has a place. gRPC clients that check health open one for each connection and
//! treat a server that rejects it as unhealthy, so many watches of one client must not take the place of another client's only
//! one. The number of connections bounds these watches. All further ones, as a proxy has them, share a bound.

use std::sync::Arc;
use std::time::Duration;

use parm_protocol::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Watches on one connection: a proxy needs one for each of its own clients, a client needs one.
pub(super) const PER_CONNECTION: usize = 16;

/// Watches on the server that are not the first of their connection. They take about 7 MB.
pub(super) const FURTHER: usize = 1024;

/// Time after which a rejected client may retry. Watches last, so a place is rarely free at once.
const RETRY: Duration = Duration::from_secs(30);

/// The places for watches on one connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Watches {
    first: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// The places of all connections for watches that are not the first.
    server: Arc<Semaphore>,
}

/// A place, which is free again when it is dropped.
pub(super) struct WatchPermit {
    _own: OwnedSemaphorePermit,
    _of_server: Option<OwnedSemaphorePermit>,
}

impl Watches {
    pub(super) fn new() -> Self {
        Self::of(Arc::new(Semaphore::new(FURTHER)))
    }

    /// The places on another connection of the same server.
    pub(super) fn on_connection(&self) -> Self {
        Self::of(self.server.clone())
    }

    fn of(server: Arc<Semaphore>) -> Self {
        let [first, others] = [1, PER_CONNECTION - 1].map(|places| Arc::new(Semaphore::new(places)));
        Self { first, others, server }
    }

    /// A place for one more watch. Rejects the watch where all places are taken.
    pub(super) fn take(&self) -> Result<WatchPermit, Error> {
        if let Ok(own) = self.first.clone().try_acquire_owned() {
            return Ok(WatchPermit { _own: own, _of_server: None });
        }
        let own = self.others.clone().try_acquire_owned().map_err(|_| {
            full(format!(
                "{PER_CONNECTION} watches are open on this connection: share one watch among clients"
            ))
        })?;
        let of_server = self.server.clone().try_acquire_owned().map_err(|_| {
            full(format!(
                "{FURTHER} watches are open that are not the first of a connection: use one a connection"
            ))
        })?;
        Ok(WatchPermit { _own: own, _of_server: Some(of_server) })
    }
}

fn full(why: String) -> Error {
    Error::TooManyRequests { message: format!("cannot watch health: {why}"), retry_after: RETRY }
}
