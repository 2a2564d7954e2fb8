//! Waking instances, be they threads or tasks.

use parking_lot::{Condvar, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// Something came that an instance may take. A queue's instances are all of one kind; the other kind costs a look at an empty list.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    threads: Condvar,
    tasks: Notify,
}

impl Arrivals {
    /// Wakes an instance.
    pub(super) fn one(&self) {
        if !self.threads.notify_one() {
            self.tasks.notify_one();
        }
    }

    /// Wakes them all.
    pub(super) fn all(&self) {
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Puts this thread to sleep until the next arrival.
    pub(super) fn wait<T>(&self, state: &mut MutexGuard<'_, T>) {
        self.threads.wait(state);
    }

    /// The same, until then at the latest.
    pub(super) fn wait_until<T>(&self, state: &mut MutexGuard<'_, T>, until: Instant) {
        self.threads.wait_until(state, until.into_std());
    }

    /// The next arrival, for a task. To be enabled before the look that it follows.
    pub(super) fn next(&self) -> Notified<'_> {
        self.tasks.notified()
    }
}
