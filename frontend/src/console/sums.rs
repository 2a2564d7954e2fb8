//! Counts of a model's queries for watchers, kept at all times in atomics.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parm_dispatcher::Reject;

use crate::serve::{Outcome, Role};

/// Outcomes of queries: those of answers, then of errors.
pub(super) const OUTCOMES: usize = Outcome::ALL.len() + 2;

/// Outcome of a query that was rejected.
const REJECTED: usize = Outcome::ALL.len();

/// Outcome of an accepted query without an answer.
const FAILED: usize = REJECTED + 1;

/// Reasons for queries without a prediction, in the order of the protocol.
pub(super) const REJECTIONS: [&str; 6] =
    ["queue_full", "overload", "no_instance", "bad_query", "deadline", "failed"];

/// Roles of jobs, in the order of the protocol.
pub(super) const ROLES: [&str; 5] = ["deployed", "copy", "parity", "backup", "stand-in"];

/// Sums of one model.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    latency: [Histogram; OUTCOMES],
    alone: Histogram,
    alone_unknown: AtomicU64,
    rejections: [AtomicU64; REJECTIONS.len()],
    /// Expired queries whose timeout allowed a usual run.
    crowded_out: AtomicU64,
    work_us: [AtomicU64; ROLES.len()],
    pub(crate) objective: Objective,
}

/// All sums at some moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) latency: [BucketCounts; OUTCOMES],
    pub(super) alone: BucketCounts,
    pub(super) alone_unknown: u64,
    pub(super) rejections: [u64; REJECTIONS.len()],
    pub(super) work_us: [u64; ROLES.len()],
}

impl Sums {
    /// Counts a request that was answered.
    pub(crate) fn answered(&self, outcome: Outcome, rows: usize, took: Duration) {
        self.latency[outcome as usize].note(took, rows as u32);
        self.objective.answered(rows, took);
    }

    /// Counts a request that was rejected or failed.
    pub(crate) fn rejected(&self, why: Reject, rows: usize, took: Duration) {
        let (outcome, reason) = match why {
            Reject::QueueFull => (REJECTED, 0),
            Reject::Overload => (REJECTED, 1),
            Reject::NoInstance => (REJECTED, 2),
            Reject::BadQuery => (REJECTED, 3),
            Reject::Deadline => (FAILED, 4),
            Reject::Failed(_) => (FAILED, 5),
        };
        self.latency[outcome].note(took, rows as u32);
        self.rejections[reason].fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Queries without an answer because of the load: rejected, and expired.
    pub(crate) fn overloaded(&self) -> [u64; 2] {
        let [queue_full, overload, ..] =
            self.rejections.each_ref().map(|count| count.load(Ordering::Relaxed));
        [queue_full + overload, self.crowded_out.load(Ordering::Relaxed)]
    }

    /// Counts an expired request if it waited for a usual run or longer. A shorter timeout expires without any load.
    pub(crate) fn expired(&self, rows: usize, waited: Duration, usual: Option<Duration>) {
        if usual.is_some_and(|usual| waited >= usual) {
            self.crowded_out.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// Counts the time until a query's own prediction.
    pub(crate) fn alone(&self, took: Duration) {
        self.alone.note(took, 1);
    }

    /// Counts an answered query whose own prediction will never arrive.
    pub(crate) fn never_alone(&self) {
        self.alone_unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished job.
    pub(crate) fn worked(&self, role: Role, took: Duration) {
        let role = match role {
            Role::Deployed => 0,
            Role::Copy => 1,
            Role::Parity => 2,
            Role::Backup => 3,
            Role::StandIn => 4,
        };
        self.work_us[role].fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn totals(&self) -> Totals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals {
            latency: self.latency.each_ref().map(Histogram::counts),
            alone: self.alone.counts(),
            alone_unknown: read(&self.alone_unknown),
            rejections: self.rejections.each_ref().map(read),
            work_us: self.work_us.each_ref().map(read),
        }
    }
}

/// Lower bound of the first bucket, which also holds all shorter times.
pub(super) const FIRST_US: u32 = 64;

/// Buckets per octave.
pub(super) const PER_OCTAVE: u32 = 16;

/// Last bucket, beyond an hour.
const LAST: usize = 400;

/// Times by bucket, allocated with the first one.
///
/// A bucket is a sixteenth of an octave: 4.4 %. The buckets of the metrics are 50 % wide each, too coarse to tell a
/// p99.9 of 24 ms from one of 36 ms. Counts only grow, and wrap; readers subtract two moments.
#[derive(Debug, Default)]
pub(super) struct Histogram(OnceLock<Box<[AtomicU32; LAST + 1]>>);

/// Counts at some moment; empty before the first.
pub(super) type BucketCounts = Vec<u32>;

impl Histogram {
    /// Counts `count` times of this length.
    pub(super) fn note(&self, took: Duration, count: u32) {
        let counts = self.0.get_or_init(|| Box::new(array::from_fn(|_| AtomicU32::new(0))));
        counts[bucket(took)].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> BucketCounts {
        let counts = self.0.get().map(|counts| counts.iter().map(|count| count.load(Ordering::Relaxed)));
        counts.map(Iterator::collect).unwrap_or_default()
    }
}

/// Counts between two moments: bucket, count, bucket, count and so on, ascending.
pub(super) fn between(before: &[u32], after: &[u32]) -> Vec<u32> {
    let earlier = |bucket: usize| before.get(bucket).copied().unwrap_or(0);
    let grown = after.iter().enumerate().map(|(bucket, count)| (bucket, count.wrapping_sub(earlier(bucket))));
    grown.filter(|(_, count)| *count > 0).flat_map(|(bucket, count)| [bucket as u32, count]).collect()
}

fn bucket(took: Duration) -> usize {
    let octaves = (took.as_secs_f64() * 1e6 / f64::from(FIRST_US)).log2();
    // Times below the first bucket count there, including zero.
    ((octaves * f64::from(PER_OCTAVE)).floor().max(0.0) as usize).min(LAST)
}

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

    #[test]
    fn timeout_shorter_than_a_usual_run_is_no_overload() {
        let (sums, ms) = (Sums::default(), Duration::from_millis);
        for (waited, usual) in [(2, Some(5)), (300, None), (300, Some(5))] {
            sums.rejected(Reject::Deadline, 1, ms(waited));
            sums.expired(1, ms(waited), usual.map(ms));
        }
        sums.rejected(Reject::Overload, 2, ms(1));
        assert_eq!(sums.overloaded(), [2, 1]);
        assert_eq!(sums.totals().rejections, [0, 2, 0, 0, 3, 0], "other counts have all");
    }

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
