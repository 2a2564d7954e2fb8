//! Counts of a model's queries for watchers, kept at all times in atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parm_dispatcher::Reject;

use super::histogram::{BucketCounts, Histogram};
use super::objective::Objective;
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
}
