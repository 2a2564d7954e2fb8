//! Answers that the server has made and the client has not read yet.
//!
//! HTTP and frames queue the bytes of an answer until the client makes room for them. So an answer's share of the byte
//! budget is tied to its bytes, and released with the last of them. The age of the oldest answer reveals a client that
//! does not read, or reads a byte now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::budget::Share;

/// The unread answers of one connection.
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

    /// The age of the oldest answer.
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
        Bytes::from_owner(AnswerPart { bytes, _answer: Arc::clone(self) })
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.unread.0.lock().since.remove(&self.number);
    }
}

struct AnswerPart {
    bytes: Bytes,
    _answer: Arc<UnreadAnswer>,
}

impl AsRef<[u8]> for AnswerPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;

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
