//! What the requests of all connections together may make a server hold.
//!
//! A bound on one body, on the streams of a connection and on connections multiplies to more than any machine has. So
//! the bytes of bodies are counted while they arrive, and until their requests are answered. What goes beyond the bound
//! is refused at once: a request that waited for room would hold the bytes that it has, and two of them could wait for
//! each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parm_protocol::Error;

/// Answers free room all the time, so a refused client need not wait for long.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The bytes that may be held.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// At most so many bytes at a time.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0) })
    }

    /// No bytes yet, on behalf of one request.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { budget: self.clone(), held: AtomicUsize::new(0), refused: AtomicBool::new(false) }
    }

    fn take(&self, bytes: usize) -> Result<(), Error> {
        let room = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map(|_| ()).map_err(|held| self.refusal(held))
    }

    fn refusal(&self, held: usize) -> Error {
        let message = format!(
            "requests in progress hold {held} of the {} bytes that this server gives them: try again later, or raise \
             server.max_bytes_in_flight",
            self.limit
        );
        Error::Overloaded { message, retry_after: RETRY_AFTER }
    }
}

/// What one request holds of a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    held: AtomicUsize,
    refused: AtomicBool,
}

impl Share {
    /// More bytes are held from now on, or none of these and an error.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), Error> {
        match self.budget.take(bytes) {
            Ok(()) => {
                self.held.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.refused.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// The error of growing too far, for who was not there to see it.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let refused = self.refused.load(Ordering::Relaxed);
        refused.then(|| self.budget.refusal(self.budget.held.load(Ordering::Relaxed)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_held_again_and_a_refusal_holds_nothing() {
        let budget = Budget::new(10);
        let (first, second) = (budget.share(), budget.share());
        first.grow(6).unwrap();
        second.grow(4).unwrap();
        assert_eq!((first.refusal(), second.refusal()), (None, None));
        let refused = second.grow(1).unwrap_err();
        assert!(refused.to_string().contains("hold 10 of the 10 bytes"), "{refused}");
        assert_eq!(second.refusal(), Some(refused));
        drop(second);
        first.grow(4).unwrap();
        drop(first);
        budget.share().grow(usize::MAX).unwrap_err();
        budget.share().grow(10).unwrap();
    }
}
