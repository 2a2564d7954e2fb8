//! What is counted of a model's queries for whoever watches, whether anybody does or not: atomics, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parm_dispatch::{Reject, Role};

use super::histogram::{BucketCounts, Histogram};
use crate::serve::Outcome;

/// Outcomes of queries as they are told: those of answers, then of errors.
pub(super) const OUTCOMES: usize = Outcome::ALL.len() + 2;

/// The outcome of a query that nobody took.
const REJECTED: usize = Outcome::ALL.len();

/// The outcome of a query that was taken and got no answer.
const FAILED: usize = REJECTED + 1;

/// Why queries got no prediction, in the order in which it is told.
pub(super) const REJECTIONS: [&str; 6] =
    ["queue_full", "overload", "no_instance", "bad_query", "deadline", "failed"];

/// What jobs are for, in the order in which it is told.
pub(super) const ROLES: [&str; 5] = ["deployed", "copy", "parity", "backup", "stand-in"];

/// Sums of one model.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    latency: [Histogram; OUTCOMES],
    alone: Histogram,
    alone_unknown: AtomicU64,
    rejections: [AtomicU64; REJECTIONS.len()],
    work_us: [AtomicU64; ROLES.len()],
}

/// All of them at some moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) latency: [BucketCounts; OUTCOMES],
    pub(super) alone: BucketCounts,
    pub(super) alone_unknown: u64,
    pub(super) rejections: [u64; REJECTIONS.len()],
    pub(super) work_us: [u64; ROLES.len()],
}

impl Sums {
    /// A request of so many rows was answered.
    pub(crate) fn answered(&self, outcome: Outcome, rows: usize, took: Duration) {
        self.latency[outcome as usize].note(took, rows as u32);
    }

    /// A request of so many rows was not.
    pub(crate) fn rejected(&self, why: Reject, rows: usize, took: Duration) {
        let (outcome, reason) = match why {
            Reject::QueueFull => (REJECTED, 0),
            Reject::Overload => (REJECTED, 1),
            Reject::NoInstance => (REJECTED, 2),
            Reject::BadQuery => (REJECTED, 3),
            Reject::Deadline => (FAILED, 4),
            Reject::Failed => (FAILED, 5),
        };
        self.latency[outcome].note(took, rows as u32);
        self.rejections[reason].fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// A query's own prediction came, so long after it arrived.
    pub(crate) fn alone(&self, took: Duration) {
        self.alone.note(took, 1);
    }

    /// A query was answered and its own prediction will never come.
    pub(crate) fn never_alone(&self) {
        self.alone_unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// A job ended.
    pub(crate) fn worked(&self, role: Role, took: Duration) {
        let role = match role {
            Role::Deployed => 0,
            Role::Copy => 1,
            Role::Parity(..) => 2,
            Role::Backup => 3,
            Role::StandIn(_) => 4,
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
