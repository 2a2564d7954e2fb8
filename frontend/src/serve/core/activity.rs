//! Counts requests in progress, and rejects new ones before the frontend ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Requests in progress.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    draining: AtomicBool,
    active: AtomicUsize,
    idle: Notify,
}

/// Counts a request as active while it lives.
pub(crate) struct Active<'a>(&'a Activity);

impl Activity {
    /// Counts a request.
    pub(crate) fn enter(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Waits until no request is active.
    pub(crate) async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.active.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
