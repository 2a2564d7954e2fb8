//! Keys of queries, jobs, groups, instances and pools.
//!
//! Tags stand for the types, so that a job can hold the key of a query while neither file imports the other.

use smallvec::SmallVec;

use crate::api::{GroupId, JobId, Time};
use crate::state::arena::Key;

/// Tag of the queries. Tags have no values.
#[derive(Debug)]
pub(crate) enum OfQuery {}
#[derive(Debug)]
pub(crate) enum OfJob {}
#[derive(Debug)]
pub(crate) enum OfGroup {}
#[derive(Debug)]
pub(crate) enum OfInstance {}
#[derive(Debug)]
pub(crate) enum OfPool {}

/// The key of a query.
pub(crate) type QueryKey = Key<OfQuery>;
/// The key of a job.
pub(crate) type JobKey = Key<OfJob>;
/// The key of a coding group.
pub(crate) type GroupKey = Key<OfGroup>;
/// The key of an instance.
pub(crate) type InstanceKey = Key<OfInstance>;
/// The key of a pool.
pub(crate) type PoolKey = Key<OfPool>;

/// The queries of a batch, in row order.
pub(crate) type Keys = SmallVec<[QueryKey; 2]>;

/// The instance that failed a job, and the time until which its queries avoid it.
pub(crate) type Avoid = (InstanceKey, Time);

impl JobKey {
    /// The driver's name for the job.
    pub(crate) fn id(self) -> JobId {
        JobId(self.raw())
    }
}

impl From<JobId> for JobKey {
    fn from(id: JobId) -> Self {
        Self::from_raw(id.0)
    }
}

impl GroupKey {
    /// The driver's name for the group.
    pub(crate) fn id(self) -> GroupId {
        GroupId(self.raw())
    }
}

impl From<GroupId> for GroupKey {
    fn from(id: GroupId) -> Self {
        Self::from_raw(id.0)
    }
}
