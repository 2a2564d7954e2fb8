//! Hedges: a query without an answer after a while is sent once more, and the first answer counts.
//!
//! **Fixed**: after a time that the operator chose (Envoy's `hedge_on_per_try_timeout`, gRPC's `hedgingDelay`). **Learned**: after
//! a quantile of the latencies of the last 30 to 60 s, while a token bucket has a token. bhope/hedge (2026) takes p90 of
//! a sketch of 1 % accuracy, and a bucket of 10 % of the queries that saves two seconds; tower's `hedge` has a quantile of
//! two histograms that rotate as well. A latency counts from the query's first sending, also if the copy wins. Nothing is
//! sent again before 20 answers. A copy looks three times for a server without the query, as Envoy's `previous_hosts` does.
//! The libraries do not look, and could send a copy to the same server.

use std::time::Duration;

use parm_dispatcher::Time;

/// When a late query is sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// After this time.
    Fixed(Duration),
    /// After this quantile of recent latencies.
    Learned {
        /// The quantile.
        quantile: f64,
        /// Copies for each query at most.
        ratio: f64,
        /// Copies that are saved up at most.
        burst: f64,
    },
}

const WINDOW: Duration = Duration::from_secs(30);
const LEAST: u32 = 20;
/// Logarithm of the width of a bucket: the middle is 1 % off at most.
const WIDTH: f64 = 0.02;

pub(super) struct Hedge {
    delay: Delay,
    tokens: f64,
    current: Histogram,
    before: Histogram,
    rotates: Time,
}

/// Counts of latencies by their logarithm.
#[derive(Default)]
struct Histogram {
    counts: Vec<u32>,
    total: u32,
}

impl Hedge {
    pub(super) fn new(delay: Delay) -> Self {
        let tokens = if let Delay::Learned { burst, .. } = delay { burst } else { 0.0 };
        let rotates = Time::ZERO + WINDOW;
        Self { delay, tokens, current: Histogram::default(), before: Histogram::default(), rotates }
    }

    /// A query is sent. Returns after which time it is late.
    pub(super) fn sent(&mut self) -> Option<Duration> {
        match self.delay {
            Delay::Fixed(delay) => Some(delay),
            Delay::Learned { quantile, ratio, burst } => {
                self.tokens = (self.tokens + ratio).min(burst);
                self.quantile(quantile)
            }
        }
    }

    /// Whether a late query may be sent again.
    pub(super) fn may_send(&mut self) -> bool {
        let may = self.tokens >= 1.0;
        match self.delay {
            Delay::Fixed(_) => true,
            Delay::Learned { .. } => {
                self.tokens -= f64::from(u8::from(may));
                may
            }
        }
    }

    /// A query was answered.
    pub(super) fn answered(&mut self, now: Time, took: Duration) {
        if now >= self.rotates {
            self.before = std::mem::take(&mut self.current);
            self.rotates = now + WINDOW;
        }
        let bucket = ((took.as_nanos().max(1) as f64).ln() / WIDTH) as usize;
        let counts = &mut self.current.counts;
        counts.resize(counts.len().max(bucket + 1), 0);
        counts[bucket] += 1;
        self.current.total += 1;
    }

    fn quantile(&self, quantile: f64) -> Option<Duration> {
        let total = self.current.total + self.before.total;
        let mut above = (f64::from(total) * (1.0 - quantile)) as u32;
        if total < LEAST {
            return None;
        }
        let at = |of: &Histogram, bucket: usize| of.counts.get(bucket).copied().unwrap_or_default();
        // From above, because that is nearer.
        let top = self.current.counts.len().max(self.before.counts.len());
        let bucket = (0..top).rev().find(|bucket| {
            let here = at(&self.current, *bucket) + at(&self.before, *bucket);
            let found = here > above;
            above = above.saturating_sub(here);
            found
        });
        bucket.map(|bucket| Duration::from_nanos((WIDTH * (bucket as f64 + 0.5)).exp() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::at;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn p90_is_learned_and_a_tenth_is_sent_again() {
        let mut hedge = Hedge::new(Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 10.0 });
        (1..20).for_each(|millis| hedge.answered(at(1), millis * MS));
        assert_eq!(hedge.sent(), None, "too few are known");
        (20..=100).for_each(|millis| hedge.answered(at(1), millis * MS));
        let learned = hedge.sent().map(|delay| delay.div_duration_f64(MS)).unwrap();
        assert!((learned / 90.0 - 1.0).abs() < 0.02, "{learned} ms");
        let burst = (0..100).filter(|_| hedge.may_send()).count();
        let sent = (0..1000).filter(|_| hedge.sent().is_some() && hedge.may_send()).count();
        assert_eq!(burst, 10);
        assert!((99..=100).contains(&sent), "{sent}");
    }

    #[test]
    fn latencies_are_forgotten_within_a_minute() {
        let mut hedge = Hedge::new(Delay::Learned { quantile: 0.9, ratio: 0.1, burst: 10.0 });
        (0..100).for_each(|_| hedge.answered(at(1), 80 * MS));
        (0..100).for_each(|_| hedge.answered(at(30_001), 20 * MS));
        assert!(hedge.sent() > Some(79 * MS));
        (0..100).for_each(|_| hedge.answered(at(60_002), 20 * MS));
        assert!(hedge.sent() < Some(21 * MS));
    }

    #[test]
    fn fixed_time_has_no_limit() {
        let mut hedge = Hedge::new(Delay::Fixed(40 * MS));
        assert_eq!(hedge.sent(), Some(40 * MS));
        assert!((0..1000).all(|_| hedge.may_send()));
    }
}
