//! The tail of a model's latest latencies next to the time that its clients allow.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Latencies that are kept.
const KEPT: usize = 1024;

/// Minimum number of answers for a tail.
const FEWEST: usize = 16;

/// Requests that a mean is taken over.
const WINDOW: f64 = 256.0;

/// The latest latencies and the time until deadlines. Requests only write atomics.
#[derive(Debug)]
pub(crate) struct Objective {
    /// Latencies of the latest rows in microseconds; a later one replaces the oldest.
    latest: Box<[AtomicU32]>,
    rows: AtomicUsize,
    /// The mean time until deadlines in nanoseconds; zero before the first request.
    allowed: AtomicU64,
}

/// The tail of a model's latencies, and the time that requests usually have until their deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The 99th percentile of the latest latencies.
    pub(crate) p99: Duration,
    pub(crate) allowed: Duration,
}

impl Tail {
    /// The p99 as a share of the time that is allowed.
    pub(crate) fn used(&self) -> f64 {
        self.p99.as_secs_f64() / self.allowed.as_secs_f64().max(1e-9)
    }
}

impl Default for Objective {
    fn default() -> Self {
        let latest = (0..KEPT).map(|_| AtomicU32::new(0)).collect();
        Self { latest, rows: AtomicUsize::new(0), allowed: AtomicU64::new(0) }
    }
}

impl Objective {
    /// Notes the time that a request has until its deadline. Of two requests at the same moment one may be lost.
    pub(crate) fn allows(&self, time: Duration) {
        let (time, before) = (time.as_nanos() as f64, self.allowed.load(Ordering::Relaxed) as f64);
        let mean = if before == 0.0 { time } else { before + (time - before) / WINDOW };
        self.allowed.store((mean as u64).max(1), Ordering::Relaxed);
    }

    /// Notes the latency of an answered request.
    pub(super) fn answered(&self, rows: usize, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let first = self.rows.fetch_add(rows, Ordering::Relaxed);
        for at in 0..rows.min(KEPT) {
            self.latest[(first + at) % KEPT].store(micros, Ordering::Relaxed);
        }
    }

    /// The tail; `None` before enough answers.
    pub(crate) fn tail(&self) -> Option<Tail> {
        let rows = self.rows.load(Ordering::Relaxed).min(KEPT);
        let allowed = Duration::from_nanos(self.allowed.load(Ordering::Relaxed));
        if rows < FEWEST || allowed.is_zero() {
            return None;
        }
        let mut latest: Vec<u32> =
            self.latest[..rows].iter().map(|own| own.load(Ordering::Relaxed)).collect();
        let (_, p99, _) = latest.select_nth_unstable((rows * 99).div_ceil(100) - 1);
        Some(Tail { p99: Duration::from_micros(u64::from(*p99)), allowed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn tail_is_of_the_latest_answers() {
        let objective = Objective::default();
        objective.allows(1000 * MS);
        objective.answered(FEWEST - 1, 500 * MS);
        assert_eq!(objective.tail(), None, "too few answers");
        objective.answered(1, 500 * MS);
        assert_eq!(objective.tail().map(|tail| tail.used()), Some(0.5));
        for _ in 0..KEPT / 64 {
            objective.answered(62, 20 * MS);
            objective.answered(2, 90 * MS);
        }
        let tail = objective.tail().unwrap();
        assert_eq!(
            (tail.p99, tail.allowed),
            (90 * MS, 1000 * MS),
            "two of 64 are more than one in a hundred"
        );
        objective.answered(5 * KEPT, 30 * MS);
        assert_eq!(objective.tail().unwrap().p99, 30 * MS, "earlier answers are forgotten");
    }

    #[test]
    fn allowed_time_follows_the_clients() {
        let objective = Objective::default();
        objective.answered(FEWEST, MS);
        assert_eq!(objective.tail(), None, "no deadline is known");
        objective.allows(100 * MS);
        for _ in 0..2000 {
            objective.allows(900 * MS);
        }
        let allowed = objective.tail().unwrap().allowed;
        assert!(allowed > 890 * MS && allowed < 900 * MS, "{allowed:?}");
    }
}
