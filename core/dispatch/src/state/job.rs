//! A job from its start on an instance until the driver reports its end.

use parm_shares::Charge;

use crate::api::{Output, Payer, Role, Time};
use crate::state::keys::{GroupKey, InstanceKey, Keys, PoolKey, QueryKey};

/// A job that an instance holds.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) pool: PoolKey,
    pub(crate) instance: InstanceKey,
    pub(crate) role: Role,
    pub(crate) started: Time,
    /// Its instance was empty when it started.
    pub(crate) alone: bool,
    /// The jobs of its instance when it started, itself included.
    pub(crate) beside: u16,
    /// The account that paid for it, and the charge.
    pub(crate) payer: Payer,
    pub(crate) charge: Charge,
    /// Its queries, answered or not.
    pub(crate) rows: Keys,
    /// The size of their inputs together: their number, unless they differ in size.
    pub(crate) size: u32,
    /// Its queries count with the size of the largest.
    pub(crate) padded: bool,
    /// The number of its unanswered queries.
    pub(crate) waiting: u16,
    /// The coding group of its queries, or of its parity.
    pub(crate) group: Option<GroupKey>,
    /// It has ended and its outputs are kept for a query (backups only).
    pub(crate) ended: bool,
    /// No query needs it: the driver was told to drop it.
    pub(crate) dropped: bool,
    /// The time when its instance began to run it, as far as known: the start, unless it was queued ahead.
    pub(crate) began: Time,
    /// Its instance was found slow or failing while this job waited there.
    pub(crate) excused: bool,
    /// It shows how fast its instance is now, and runs to its end. Its queries do not name it, so that none waits for
    /// it.
    pub(crate) explores: bool,
    /// It is a copy paid by the hedge budget.
    pub(crate) hedge: bool,
    /// It is late.
    pub(crate) late: bool,
    /// The time of its timer.
    pub(crate) look_at: Option<Time>,
    /// Other answers that are compared with its own.
    pub(crate) twins: Vec<Twin>,
}

/// Another answer to one of a job's queries, kept until the job ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    /// The job's row.
    pub(crate) row: u32,
    pub(crate) other: Output,
    /// The arrival of a query that was answered before this job ended, to measure its full wait.
    pub(crate) waited_from: Option<Time>,
}

impl Job {
    /// The row of a query.
    pub(crate) fn row_of(&self, query: QueryKey) -> Option<u32> {
        self.rows.iter().position(|row| *row == query).map(|row| row as u32)
    }
}
