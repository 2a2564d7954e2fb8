//! Grants frontends a queue's threads.

use std::num::NonZeroU16;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_grants::Order;
use parm_protocol::fleet::{Frontend, Giver, Mailbox};
use tokio::time::Instant;

use super::Queue;

/// A queue as frontends see it.
pub(crate) struct Grants {
    queue: Arc<Queue>,
}

impl Grants {
    pub(crate) fn new(queue: &Arc<Queue>) -> Self {
        Self { queue: queue.clone() }
    }
}

impl Giver for Grants {
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

    fn hears(&self, frontend: Frontend, order: Order) {
        self.queue.hears(frontend, order);
    }
}

/// Looks after old grants while the queue exists.
async fn watch(queue: Weak<Queue>) {
    /// The interval without grants to look after, in which a dropped queue is noticed.
    const LONGEST: Duration = Duration::from_secs(1);
    loop {
        let Some(strong) = queue.upgrade() else { return };
        let at = strong.look();
        let sooner = strong.sooner.clone();
        drop(strong);
        let notified = sooner.notified();
        let pause = at.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
        // Before or after, but not both.
        let _ = tokio::time::timeout(pause.min(LONGEST), notified).await;
    }
}
