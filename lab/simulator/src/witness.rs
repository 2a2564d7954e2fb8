//! What a run shows to whoever watches it: the same things that a frontend can record of itself.

use parm_dispatch::Role;
use parm_workload::clock::Moment;

use crate::Outcome;

/// Watches a run.
pub trait Witness {
    /// A query arrives.
    fn arrived(&mut self, _at: Moment) {}

    /// An instance ends a job.
    fn executed(&mut self, _execution: Execution) {}

    /// A query that counts (the warm-up is over) has its answer.
    fn answered(&mut self, _answered: Answered) {}
}

/// A job that an instance did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The instance, counted from 0.
    pub instance: u32,
    /// What it was for.
    pub role: Role,
    /// Rows of its batch.
    pub rows: usize,
    /// When the instance was given it.
    pub given: Moment,
    /// When its answer was in.
    pub ended: Moment,
}

/// A query's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Nanoseconds from its arrival.
    pub latency: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Members of the group that a reconstruction comes from; else 0.
    pub members: u8,
    /// Whether the answer is wrong by the fault schedule's doing.
    pub wrong: bool,
}
