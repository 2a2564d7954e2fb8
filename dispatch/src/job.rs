//! A job from its start on an instance until the driver reports how it ended.

use super::arena::Key;
use super::group::Group;
use super::instance::Instance;
use super::pool::Pool;
use super::query::Keys;
use super::{JobId, Role, Time};

/// A job that an instance holds.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) pool: Key<Pool>,
    pub(super) instance: Key<Instance>,
    pub(super) role: Role,
    pub(super) started: Time,
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
