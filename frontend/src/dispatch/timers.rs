//! One heap for everything that waits for a time.
//!
//! Most timers never fire: the query is answered long before its deadline. So deletion is lazy: a timer names what it
//! is for by a key that finds nothing once that is gone. When dead timers could be half of the heap it is swept, which
//! keeps memory proportional to what is alive however far off the deadlines are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Time;
use super::arena::Key;
use super::group::Group;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::query::Query;

/// What a time is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The answer is no longer wanted.
    Deadline(Key<Query>),
    /// The job counts as late.
    Late(Key<Job>),
    /// A batch has waited long enough for company.
    Batch(Key<Pool>),
    /// Queries have waited long enough for an instance.
    NoInstance(Key<Pool>),
    /// An open group is old.
    Age(Key<Group>),
    /// A query has waited long enough to be given something else than its prediction.
    Grace(Key<Query>),
    /// An ejected instance is to be probed, or its probe is overdue.
    Probe(Key<Instance>),
}

/// The heap.
pub(super) struct Timers {
    heap: BinaryHeap<Entry>,
    next: u64,
    sweep_at: usize,
}

struct Entry {
    at: Time,
    /// Timers of one moment fire in the order in which they were set.
    order: u64,
    timer: Timer,
}

const SWEEP_FLOOR: usize = 1024;

impl Timers {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0, sweep_at: SWEEP_FLOOR }
    }

    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.next += 1;
        self.heap.push(Entry { at, order: self.next, timer });
    }

    /// The earliest time, of the living and the dead.
    pub(super) fn earliest(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The next timer whose time has come.
    pub(super) fn due(&mut self, now: Time) -> Option<Timer> {
        if self.earliest()? > now {
            return None;
        }
        self.heap.pop().map(|entry| entry.timer)
    }

    /// Whether so many timers were set since the last sweep that the dead could be the majority.
    pub(super) fn wants_sweep(&self) -> bool {
        self.heap.len() > self.sweep_at
    }

    /// Drops the dead.
    pub(super) fn sweep(&mut self, alive: impl Fn(Timer) -> bool) {
        self.heap.retain(|entry| alive(entry.timer));
        self.sweep_at = (2 * self.heap.len()).max(SWEEP_FLOOR);
    }
}

impl Ord for Entry {
    /// Earliest first out of a heap that gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}
