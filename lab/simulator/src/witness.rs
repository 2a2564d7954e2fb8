//! The interface that observes a run: the same events that a frontend can record about itself.

use parm_settings::recording::RecordedRole;
use parm_workload::clock::Moment;

use crate::Outcome;

/// Observes a run.
pub trait Witness {
    /// A query arrives.
    fn arrived(&mut self, _at: Moment) {}

    /// An instance ends a job.
    fn executed(&mut self, _execution: Execution) {}

    /// A counted query (after the warm-up) is answered.
    fn answered(&mut self, _answered: Answered) {}

    /// A query of the warm-up is answered.
    fn warmed_up(&mut self, _answered: Answered) {}
}

/// A job that an instance executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The instance, counted from 0.
    pub instance: u32,
    /// The role of the job.
    pub role: RecordedRole,
    /// Rows of its batch.
    pub rows: usize,
    /// When the instance received it.
    pub given: Moment,
    /// When its answer arrived.
    pub ended: Moment,
    /// When its first query arrived; `None` for a parity.
    pub arrived: Option<Moment>,
}

/// A query's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its number, counted from 0 with the warm-up.
    pub number: u64,
    /// When it arrived.
    pub arrived: Moment,
    /// Nanoseconds from its arrival.
    pub latency: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Members of the group of a reconstruction; otherwise 0.
    pub members: u8,
    /// Whether the answer is wrong because of the fault schedule.
    pub wrong: bool,
}
