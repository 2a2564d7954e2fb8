//! Gives frontends tokens for a queue's threads.

use std::num::NonZeroU16;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::fleet::{Caller, Giver, Mailbox, Wish};
use parm_tokens::{Frontend, Order};
use tokio::time::Instant;

use super::Queue;

/// A queue as frontends see it.
pub(crate) struct Counter {
    queue: Arc<Queue>,
}

impl Counter {
    pub(crate) fn new(queue: &Arc<Queue>) -> Self {
        Self { queue: queue.clone() }
    }
}

impl Giver for Counter {
    fn slots(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(u16::try_from(self.queue.threads()).unwrap_or(u16::MAX))
    }

    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend {
        let (frontend, first) = self.queue.join(mailbox.into());
        if first {
            tokio::spawn(watch(Arc::downgrade(&self.queue)));
        }
        frontend
    }

    fn leave(&self, frontend: Frontend) {
        self.queue.leave(frontend);
    }

    fn told(&self, frontend: Frontend, order: Order<Wish>) {
        self.queue.told(frontend, order);
    }
}

/// Runs the token timers while the queue exists.
async fn watch(queue: Weak<Queue>) {
    /// The interval without timers, after which a dropped queue is noticed.
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let Some(strong) = queue.upgrade() else { return };
        let at = strong.tick();
        let sooner = strong.sooner.clone();
        drop(strong);
        let notified = sooner.notified();
        let pause = at.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
        // Before or after, but not both.
        let _ = tokio::time::timeout(pause.min(LONGEST), notified).await;
    }
}

/// The token of a request that is not yet queued: it returns if the request never is.
pub(crate) struct Unused<'a> {
    pub(crate) queue: &'a Queue,
    pub(crate) caller: Option<Caller>,
}

impl Unused<'_> {
    /// Queues the request with its token.
    pub(crate) fn used(mut self) -> Option<Caller> {
        self.caller.take()
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(Caller { frontend, token: Some(token) }) = self.caller {
            self.queue.told(frontend, Order::GiveBack(token));
        }
    }
}
