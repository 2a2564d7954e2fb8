//! How much one key may ask for: a token bucket of requests, and requests at a time.
//!
//! A request counts as one, whatever it asks for; the queue and the budget of bytes bound what it may cost. Who is over is
//! told when to come again, and costs no more than the look at its key.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest wait that a refused client is told. A client that comes back earlier is refused again, at the cost of one look
/// at its key; no client plans further ahead.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// What a key may ask for; nothing where it is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Allowance {
    /// Requests a second in the long run.
    pub(super) rate: Option<f64>,
    /// Requests at once after a pause.
    pub(super) burst: f64,
    /// Requests at a time.
    pub(super) concurrency: Option<u32>,
}

/// How a key is over its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Over {
    /// Another request may be sent after so long.
    Rate(f64, Duration),
    /// So many are in progress.
    Concurrency(u32),
}

/// What a key has asked for.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) allowance: Allowance,
    bucket: Mutex<(f64, Instant)>,
    underway: AtomicU32,
}

impl Limit {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self { allowance, bucket: Mutex::new((allowance.burst, Instant::now())), underway: AtomicU32::new(0) }
    }

    /// Counts a request in; who is let in must [`leave`](Self::leave).
    pub(super) fn enter(&self) -> Result<(), Over> {
        if let Some(most) = self.allowance.concurrency
            && self.underway.fetch_add(1, Ordering::Relaxed) >= most
        {
            self.leave();
            return Err(Over::Concurrency(most));
        }
        let Some(rate) = self.allowance.rate else { return Ok(()) };
        let mut bucket = self.bucket.lock();
        let (tokens, last) = *bucket;
        let now = Instant::now();
        let tokens = (tokens + rate * now.duration_since(last).as_secs_f64()).min(self.allowance.burst);
        if tokens < 1.0 {
            *bucket = (tokens, now);
            drop(bucket);
            self.leave();
            // A rate may be so small that its wait is no `Duration`.
            let wait = Duration::try_from_secs_f64((1.0 - tokens) / rate).unwrap_or(LONGEST_WAIT);
            return Err(Over::Rate(rate, wait.min(LONGEST_WAIT)));
        }
        *bucket = (tokens - 1.0, now);
        Ok(())
    }

    pub(super) fn leave(&self) {
        if self.allowance.concurrency.is_some() {
            self.underway.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_in_and_then_the_rate() {
        let limit = Limit::new(Allowance { rate: Some(10.0), burst: 3.0, concurrency: None });
        for _ in 0..3 {
            limit.enter().unwrap();
        }
        assert_eq!(limit.enter(), Err(Over::Rate(10.0, Duration::from_millis(100))));
        tokio::time::advance(Duration::from_millis(101)).await;
        limit.enter().unwrap();
        limit.enter().unwrap_err();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(
            (0..9).filter(|_| limit.enter().is_ok()).count(),
            3,
            "a pause earns one burst and no more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_let_in_and_leaves_makes_room_and_who_is_not_holds_none() {
        let limit = Limit::new(Allowance { rate: Some(1.0), burst: 4.0, concurrency: Some(2) });
        limit.enter().unwrap();
        limit.enter().unwrap();
        for _ in 0..5 {
            assert_eq!(limit.enter(), Err(Over::Concurrency(2)));
        }
        limit.leave();
        limit.enter().unwrap();
        limit.leave();
        limit.leave();
        limit.enter().unwrap();
        assert!(matches!(limit.enter(), Err(Over::Rate(..))), "five were sent and four are allowed");
        limit.leave();
        tokio::time::advance(Duration::from_secs(9)).await;
        limit.enter().unwrap();
        limit.enter().unwrap();
        assert_eq!(limit.enter(), Err(Over::Concurrency(2)));
    }

    /// A request in a hundred billion years: its wait does not fit into a `Duration`.
    #[tokio::test(start_paused = true)]
    async fn tiny_rate_reports_a_bounded_wait_when_exceeded() {
        for rate in [1e-20, f64::MIN_POSITIVE] {
            let limit = Limit::new(Allowance { rate: Some(rate), burst: 1.0, concurrency: Some(1) });
            limit.enter().unwrap();
            limit.leave();
            for _ in 0..3 {
                let refused = limit.enter().unwrap_err();
                assert_eq!(refused, Over::Rate(rate, LONGEST_WAIT), "rate {rate}");
            }
            assert_eq!(limit.underway.load(Ordering::Relaxed), 0, "a refused request holds no place");
        }
    }
}
