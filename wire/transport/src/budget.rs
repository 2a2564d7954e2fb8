//! The byte budget of a server, shared by the requests of all connections.
//!
//! Limits on one body, on the streams of a connection and on connections multiply to more memory than any machine has.
//! So the bytes of bodies are counted while they arrive, and until their requests are answered. A request beyond the
//! limit is rejected immediately: if it waited it would keep the bytes that it has, and two requests could deadlock.
//!
//! One share follows a request from its first byte to the last byte of its answer. While the body arrives, it covers
//! the bytes received. After decoding it covers the request, if that is larger. Both exist for a moment, but decoding
//! is synchronous, so that a thread has one such body at a time. Then it covers the answer until the client has read
//! it, so slow clients are bounded too.
//!
//! HTTP and frames queue the bytes of an answer until the client makes room for them. So an answer's share is tied to its bytes
//! ([`UnreadAnswer`]), and released with the last of them. The age of the oldest answer reveals a client that does not read, or
//! reads a byte now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use parm_protocol::Error;
use tokio::time::Instant;

/// The budget.
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

    pub(crate) fn share(self: &Arc<Self>) -> Arc<Share> {
        Arc::new(Share { budget: self.clone(), held: AtomicUsize::new(0) })
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), Error> {
        let room = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map(drop).map_err(|held| {
            Error::overloaded(format!(
                "requests and answers in progress hold {held} of the {} bytes of this server's budget: try again later, \
                 or raise server.max_bytes_in_flight",
                self.limit
            ))
        })
    }
}

/// The bytes that one request holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    held: AtomicUsize,
}

impl Share {
    /// Adds bytes, or adds none and fails.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), Error> {
        self.budget.take(bytes)?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Grows to at least so many bytes, or stays unchanged and fails.
    pub(crate) fn cover(&self, bytes: usize) -> Result<(), Error> {
        self.grow(bytes.saturating_sub(self.held.load(Ordering::Relaxed)))
    }

    /// Changes to exactly so many bytes, or drops to none and fails.
    pub(crate) fn turn_into(&self, bytes: usize) -> Result<(), Error> {
        let before = self.held.swap(0, Ordering::Relaxed);
        self.budget.held.fetch_sub(before, Ordering::Relaxed);
        self.grow(bytes)
    }

    /// Changes to the size of these bytes, even beyond the limit, and holds it until they are dropped.
    pub(crate) fn hold(self: Arc<Self>, bytes: Bytes) -> Bytes {
        let before = self.held.swap(bytes.len(), Ordering::Relaxed);
        self.budget.held.fetch_add(bytes.len(), Ordering::Relaxed);
        self.budget.held.fetch_sub(before, Ordering::Relaxed);
        Bytes::from_owner(Keeping { bytes, _kept: self })
    }
}

/// Bytes that keep something until they are dropped.
struct Keeping<T> {
    bytes: Bytes,
    _kept: T,
}

impl<T> AsRef<[u8]> for Keeping<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

/// Answers of one connection that the server has made and the client has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<Backlog>);

#[derive(Debug, Default)]
struct Backlog {
    next: u64,
    /// The time at which each was made, the oldest first.
    since: BTreeMap<u64, Instant>,
}

/// One answer, until its last byte is gone.
#[derive(Debug)]
pub(crate) struct UnreadAnswer {
    unread: Arc<Unread>,
    number: u64,
    _share: Option<Arc<Share>>,
}

impl Unread {
    /// An answer that is made now and holds a share of the budget.
    pub(crate) fn answer(self: &Arc<Self>, share: Option<Arc<Share>>) -> Arc<UnreadAnswer> {
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.since.insert(number, Instant::now());
        drop(waiting);
        Arc::new(UnreadAnswer { unread: Arc::clone(self), number, _share: share })
    }

    /// Time left for the oldest answer; `limit` if there is none.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        self.oldest().map_or(limit, |oldest| limit.saturating_sub(oldest))
    }

    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.0.lock().since.values().next().map(Instant::elapsed)
    }

    /// Returns when an answer was unread for `limit`.
    pub(crate) async fn overdue(&self, limit: Duration) {
        loop {
            let patience = self.patience(limit);
            if patience.is_zero() {
                return;
            }
            tokio::time::sleep(patience).await;
        }
    }
}

impl UnreadAnswer {
    /// A part of the answer, which keeps it alive until it is written.
    pub(crate) fn part(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(Keeping { bytes, _kept: Arc::clone(self) })
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.unread.0.lock().since.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_bytes_are_free_again_and_a_rejection_holds_none() {
        let budget = Budget::new(10);
        let (first, second) = (budget.share(), budget.share());
        first.grow(6).unwrap();
        second.grow(4).unwrap();
        let refused = second.grow(1).unwrap_err();
        assert!(refused.to_string().contains("hold 10 of the 10 bytes"), "{refused}");
        assert!(refused.to_string().contains("server.max_bytes_in_flight"), "{refused}");
        drop(second);
        first.grow(4).unwrap();
        drop(first);
        budget.share().grow(usize::MAX).unwrap_err();
        budget.share().grow(10).unwrap();
    }

    #[test]
    fn held_bytes_count_beyond_the_limit_until_they_are_dropped() {
        let budget = Budget::new(10);
        let share = budget.share();
        share.grow(4).unwrap();
        let bytes = share.hold(Bytes::from_static(&[0; 12]));
        assert_eq!((budget.held(), bytes.len()), (12, 12));
        assert!(budget.share().grow(0).is_err());
        drop(bytes);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn share_covers_the_decoded_request_and_then_the_answer() {
        let budget = Budget::new(10);
        let share = budget.share();
        share.grow(4).unwrap();
        share.cover(3).unwrap();
        assert_eq!(budget.held(), 4);
        share.cover(7).unwrap();
        assert_eq!(budget.held(), 7);
        share.cover(11).unwrap_err();
        assert_eq!(budget.held(), 7);
        share.turn_into(9).unwrap();
        share.turn_into(2).unwrap();
        assert_eq!(budget.held(), 2);
        share.turn_into(11).unwrap_err();
        assert_eq!(budget.held(), 0, "neither the request nor an answer holds bytes");
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn answer_holds_its_share_until_its_last_byte() {
        let (budget, unread) = (Budget::new(100), Arc::new(Unread::default()));
        let share = budget.share();
        share.grow(6).unwrap();
        let answer = unread.answer(Some(share));
        let parts = [answer.part("abc".into()), answer.part("def".into())];
        drop(answer);
        let rest = parts[1].slice(2..);
        drop(parts);
        assert_eq!((&rest[..], budget.held()), (&b"f"[..], 6));
        drop(rest);
        assert_eq!((budget.held(), unread.patience(LIMIT)), (0, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_counts_from_the_oldest_answer() {
        let unread = Arc::new(Unread::default());
        let first = unread.answer(None);
        tokio::time::sleep(Duration::from_secs(4)).await;
        let second = unread.answer(None);
        assert_eq!(unread.patience(LIMIT), Duration::from_secs(6));
        drop(first);
        assert_eq!(unread.patience(LIMIT), LIMIT);
        let began = Instant::now();
        unread.overdue(LIMIT).await;
        assert_eq!(began.elapsed(), LIMIT);
        drop(second);
    }
}
