//! A job from its start on an instance until the driver reports how it ended.

use parm_shares::Charge;

use super::arena::Key;
use super::group::Group;
use super::instance::Instance;
use super::pool::Pool;
use super::query::{Keys, Query};
use super::{JobId, Output, Payer, Role, Time};

/// A job that an instance holds.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) pool: Key<Pool>,
    pub(super) instance: Key<Instance>,
    pub(super) role: Role,
    pub(super) started: Time,
    /// Its instance had nothing else.
    pub(super) alone: bool,
    /// Whose share was charged for it, and what.
    pub(super) payer: Payer,
    pub(super) charge: Charge,
    /// Its queries, answered or not.
    pub(super) rows: Keys,
    /// How many of them wait for an answer.
    pub(super) waiting: u16,
    /// The coding group of its queries, or of its parity.
    pub(super) group: Option<Key<Group>>,
    /// It ran: its outputs wait for a query that may want them (backups only).
    pub(super) ended: bool,
    /// Nobody waits for it: the driver was told to drop it.
    pub(super) dropped: bool,
    /// When its instance had nothing else to do before it, as far as is known: as it was sent, unless that was ahead of time.
    pub(super) began: Time,
    /// Its instance was found slow or failing while it was there already.
    pub(super) excused: bool,
    /// It is a copy that the hedge budget paid for.
    pub(super) hedge: bool,
    /// It takes longer than jobs of its pool usually do.
    pub(super) late: bool,
    /// When its timer fires.
    pub(super) look_at: Option<Time>,
    /// Answers from elsewhere to be compared with its own.
    pub(super) twins: Vec<Twin>,
}

/// Another answer to one of a job's queries, which is kept until the job ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    /// The job's row.
    pub(super) row: u32,
    pub(super) other: Output,
    /// When the query arrived, if its wait for this job is to be known though it was answered before.
    pub(super) waited_from: Option<Time>,
}

impl Job {
    /// The row of a query.
    pub(super) fn row_of(&self, query: Key<Query>) -> Option<u32> {
        self.rows.iter().position(|row| *row == query).map(|row| row as u32)
    }
}

impl Key<Job> {
    /// The driver's name for the job.
    pub(super) fn id(self) -> JobId {
        JobId(self.raw())
    }
}

impl From<JobId> for Key<Job> {
    fn from(id: JobId) -> Self {
        Self::from_raw(id.0)
    }
}
