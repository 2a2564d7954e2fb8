//! A query between its arrival and its answer. Once answered it is gone: whatever still names it finds nothing.

use smallvec::SmallVec;

use super::arena::Key;
use super::group::Place;
use super::instance::Instance;
use super::job::Job;
use super::pool::Pool;
use super::queue::LaneId;
use super::{Accept, Output, Payer, QueryId, ShapeId, Time};

/// A query without an answer.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: QueryId,
    pub(super) pool: Key<Pool>,
    pub(super) shape: ShapeId,
    pub(super) priority: u8,
    pub(super) payer: Payer,
    pub(super) arrived: Time,
    pub(super) deadline: Time,
    pub(super) accept: Accept,
    pub(super) codable: bool,
    /// It waits in its pool's queue, never tried.
    pub(super) queued: bool,
    /// Times that an instance failed it.
    pub(super) failures: u8,
    /// Retries that were paid for to have it tried again.
    pub(super) retried: u8,
    /// The first instances on which the model failed with it: two of them say that it is the query.
    pub(super) failed_at: SmallVec<[Key<Instance>; 2]>,
    /// Queries in the batch with which it failed last.
    pub(super) failed_in: u16,
    /// Retries and hedges of it that wait for an instance.
    pub(super) extras: u8,
    /// Its place in a coding group.
    pub(super) place: Option<Place>,
    /// The job that runs it on the backup model, or did.
    pub(super) backup: Option<Key<Job>>,
    /// Its stand-in.
    pub(super) aid: Aid,
    /// Stand-ins that were started for it.
    pub(super) aids: u8,
    /// A timer is set for when its reconstruction may be given.
    pub(super) held_back: bool,
    /// Its story says that it is late.
    pub(super) noted_late: bool,
    /// The jobs that run it now on the deployed model.
    pub(super) jobs: SmallVec<[Key<Job>; 2]>,
}

/// How far a query's stand-in is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Aid {
    /// It has none.
    #[default]
    None,
    /// This job is to make it.
    Runs(Key<Job>),
    /// Its answer is in.
    In(Output),
    /// The driver looks at it.
    Judged(Output),
    /// It is not good enough, and there will be no other.
    Useless,
}

impl Query {
    /// The instance that it failed at, where this job shows that it was not the query's fault: elsewhere, and with all of
    /// its batch, it works.
    pub(super) fn failed_only_at(&self, job: &Job) -> Option<Key<Instance>> {
        let [at] = self.failed_at[..] else { return None };
        (at != job.instance && job.rows.len() >= usize::from(self.failed_in)).then_some(at)
    }

    /// Where it waits. What must be served alone has a lane where batches have one query.
    pub(super) fn lane(&self) -> LaneId {
        LaneId { priority: self.priority, payer: self.payer, shape: self.shape, alone: !self.codable }
    }
}

/// The queries of a batch, in row order.
pub(super) type Keys = SmallVec<[Key<Query>; 2]>;
