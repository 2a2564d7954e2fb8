//! Limits of one key: a rate limit (token bucket), and a limit on concurrent requests.
//!
//! A request counts as one, whatever its size; the queue and the byte budget limit its cost. A rejected client receives
//! a retry delay, and costs no more than the lookup of its key.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use parm_protocol::Error;
use tokio::time::Instant;

/// Retry delay of a caller with too many requests in progress: its own answers free a place.
const LATER: Duration = Duration::from_secs(1);

/// The longest retry delay. A client that returns earlier is rejected again, at the cost of one lookup; no client plans
/// further ahead.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Allowance {
    /// Requests a second in the long run.
    pub(super) rate: Option<f64>,
    /// Requests at once after a pause.
    pub(super) burst: f64,
    pub(super) concurrency: Option<u32>,
}

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

    /// Counts a request of the key of this name; an admitted one must [`leave`](Self::leave).
    pub(super) fn enter(&self, name: &str) -> Result<(), Error> {
        if let Some(most) = self.allowance.concurrency
            && self.underway.fetch_add(1, Ordering::Relaxed) >= most
        {
            self.leave();
            let message = format!(
                "key '{name}' has {most} requests in progress, its limit: wait for answers before sending more"
            );
            return Err(Error::TooManyRequests { message, retry_after: LATER });
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
            // A rate may be so small that its delay does not fit into a `Duration`.
            let wait = Duration::try_from_secs_f64((1.0 - tokens) / rate).unwrap_or(LONGEST_WAIT);
            let message = format!(
                "key '{name}' exceeds its rate of {rate} requests a second: send fewer, or have its rate raised"
            );
            return Err(Error::TooManyRequests { message, retry_after: wait.min(LONGEST_WAIT) });
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

    /// The retry delay of a rejected request; `None` if it is admitted.
    fn enter(limit: &Limit) -> Option<Duration> {
        match limit.enter("a") {
            Ok(()) => None,
            Err(Error::TooManyRequests { retry_after, .. }) => Some(retry_after),
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_admitted_and_then_the_rate() {
        let limit = Limit::new(Allowance { rate: Some(10.0), burst: 3.0, concurrency: None });
        for _ in 0..3 {
            limit.enter("a").unwrap();
        }
        assert_eq!(enter(&limit), Some(Duration::from_millis(100)));
        tokio::time::advance(Duration::from_millis(101)).await;
        limit.enter("a").unwrap();
        limit.enter("a").unwrap_err();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..9).filter(|_| limit.enter("a").is_ok()).count(), 3, "a pause fills the bucket once");
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_request_holds_no_concurrency_place() {
        let limit = Limit::new(Allowance { rate: Some(1.0), burst: 4.0, concurrency: Some(2) });
        limit.enter("a").unwrap();
        limit.enter("a").unwrap();
        for _ in 0..5 {
            assert_eq!(enter(&limit), Some(LATER));
        }
        limit.leave();
        limit.enter("a").unwrap();
        limit.leave();
        limit.leave();
        limit.enter("a").unwrap();
        let told = limit.enter("a").unwrap_err().to_string();
        assert!(told.contains("its rate of 1 requests"), "five were sent and four are allowed: {told}");
        limit.leave();
        tokio::time::advance(Duration::from_secs(9)).await;
        limit.enter("a").unwrap();
        limit.enter("a").unwrap();
        assert_eq!(enter(&limit), Some(LATER));
    }
}
