//! A lease that a thread renews until the work ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lease::BEATS;
use crate::{Error, Lease, Leases, Listing};

/// A lease with its heartbeat. Dropped before [`Kept::finish`], it is free for other processes.
pub struct Kept {
    lease: Arc<Lease>,
    lost: Arc<AtomicBool>,
    heart: Mutex<Option<(mpsc::SyncSender<()>, JoinHandle<()>)>>,
    finished: AtomicBool,
}

impl Kept {
    /// Starts to renew a lease; it expires after `limit`.
    pub(crate) fn new(lease: Lease, limit: Duration) -> Self {
        let (lease, lost) = (Arc::new(lease), Arc::new(AtomicBool::new(false)));
        let (stop, stopped) = mpsc::sync_channel(1);
        let (beats, gone) = (lease.clone(), lost.clone());
        let heart = thread::spawn(move || {
            let mut renewed = Instant::now();
            while stopped.recv_timeout(limit / BEATS) == Err(RecvTimeoutError::Timeout) {
                match beats.renew() {
                    Ok(true) => renewed = Instant::now(),
                    // An unreachable folder for less than the limit does no harm.
                    Err(_) if renewed.elapsed() < limit => {}
                    Ok(false) | Err(_) => return gone.store(true, Ordering::Relaxed),
                }
            }
        });
        Self { lease, lost, heart: Mutex::new(Some((stop, heart))), finished: AtomicBool::new(false) }
    }

    /// Whether another process may run the work.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the lease is still the newest, read from the folder.
    pub fn is_held(&self) -> Result<bool, Error> {
        Ok(!self.is_lost() && self.lease.renew().map_err(Error::file("renew", &self.lease.path()))?)
    }

    /// Ends the lease after the result was written.
    pub fn finish(&self) -> Result<(), Error> {
        self.rest();
        self.finished.store(true, Ordering::Relaxed);
        self.lease.finish().map_err(Error::file("release", &self.lease.path()))
    }

    /// Gives the work back while it still runs: it gets no result here.
    pub(crate) fn abandon(&self) {
        self.lost.store(true, Ordering::Relaxed);
        // A heartbeat after this would make the lease look held.
        self.rest();
        self.free();
    }

    /// Gives the work back without a result.
    fn free(&self) {
        // A lease that cannot be freed expires.
        let _ = self.lease.free();
    }

    /// Ends the heartbeat.
    fn rest(&self) {
        if let Some((stop, heart)) = self.heart.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(stop);
            let _ = heart.join();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.rest();
        if !self.finished.load(Ordering::Relaxed) {
            self.free();
        }
    }
}

impl Leases {
    /// Waits for the lease of work that several cells need. Returns `None` when it is done, or `stop` says so.
    pub fn wait(
        &self,
        key: &str,
        is_done: &dyn Fn() -> bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Kept>, Error> {
        let failed = |error| Error::file("lease", &self.path(key, 1))(error);
        loop {
            if is_done() || stop() {
                return Ok(None);
            }
            let listing = Listing::read(self.folder()).map_err(failed)?;
            if let Some(lease) = self.claim(key, &listing).map_err(failed)? {
                let kept = Kept::new(lease, self.limit());
                // It may have been done since the first look.
                if is_done() {
                    kept.finish()?;
                    return Ok(None);
                }
                return Ok(Some(kept));
            }
            self.pause(stop);
        }
    }
}
