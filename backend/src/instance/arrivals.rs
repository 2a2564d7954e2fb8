//! Wakes instances, which are threads or tasks.

use parking_lot::{Condvar, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// A notification of arrived work. The instances of a queue are all threads or all tasks; the other kind costs a look
/// at an empty list.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    threads: Condvar,
    tasks: Notify,
}

impl Arrivals {
    /// Wakes one instance.
    pub(super) fn one(&self) {
        if !self.threads.notify_one() {
            self.tasks.notify_one();
        }
    }

    /// Wakes all instances.
    pub(super) fn all(&self) {
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Parks this thread until the next arrival.
    pub(super) fn wait<T>(&self, state: &mut MutexGuard<'_, T>) {
        self.threads.wait(state);
    }

    /// Parks this thread until the next arrival, or until a timeout.
    pub(super) fn wait_until<T>(&self, state: &mut MutexGuard<'_, T>, until: Instant) {
        self.threads.wait_until(state, until.into_std());
    }

    /// The next arrival, for a task. Enable it before checking the queue.
    pub(super) fn next(&self) -> Notified<'_> {
        self.tasks.notified()
    }
}
