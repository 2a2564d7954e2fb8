//! A query between its arrival and its answer. After its answer no key finds it.

use smallvec::SmallVec;

use crate::api::{Accept, Output, Payer, QueryId, ShapeId, Time};
use crate::state::group::Place;
use crate::state::job::Job;
use crate::state::keys::{InstanceKey, JobKey, PoolKey};
use crate::state::queue::LaneId;

/// A query without an answer.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) id: QueryId,
    pub(crate) pool: PoolKey,
    pub(crate) shape: ShapeId,
    pub(crate) priority: u8,
    pub(crate) payer: Payer,
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    pub(crate) accept: Accept,
    pub(crate) codable: bool,
    /// The size of its input, in any unit.
    pub(crate) size: u32,
    /// It may share a batch with queries of other sizes.
    pub(crate) padded: bool,
    /// It waits in its pool's queue and was never tried.
    pub(crate) queued: bool,
    /// It gets no further jobs.
    pub(crate) withheld: bool,
    /// It gets no further attempt, and other work that runs may answer it.
    pub(crate) left: bool,
    /// Failed attempts.
    pub(crate) failures: u8,
    /// Retries that the budget paid for it.
    pub(crate) retried: u8,
    /// The first instances on which the model failed with it. Two of them prove that the query is at fault.
    pub(crate) failed_at: SmallVec<[InstanceKey; 2]>,
    /// Size of the batch in which it failed last.
    pub(crate) failed_in: u16,
    /// Its retries and hedges that wait for an instance.
    pub(crate) extras: u8,
    /// Its place in a coding group.
    pub(crate) place: Option<Place>,
    /// The job that runs or ran it on the backup model.
    pub(crate) backup: Option<JobKey>,
    /// Its stand-in.
    pub(crate) stand_in: StandInState,
    /// Stand-ins that were started for it.
    pub(crate) stand_ins_started: u8,
    /// A timer is set for when its reconstruction may be given.
    pub(crate) held_back: bool,
    /// Its lateness was traced.
    pub(crate) noted_late: bool,
    /// The jobs that run it on the deployed model, without those that explore.
    pub(crate) jobs: SmallVec<[JobKey; 2]>,
}

/// The progress of a query's stand-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StandInState {
    /// It has none.
    #[default]
    None,
    /// This job runs it.
    Runs(JobKey),
    /// Its answer has arrived.
    In(Output),
    /// The driver judges its answer.
    Judged(Output),
    /// Its answer is not good enough, and no other is made.
    Useless,
}

impl Query {
    /// The instance on which it failed, if this job proves the query innocent: it succeeded on another instance in
    /// a batch at least as large.
    pub(crate) fn failed_only_at(&self, job: &Job) -> Option<InstanceKey> {
        let [at] = self.failed_at[..] else { return None };
        (at != job.instance && job.rows.len() >= usize::from(self.failed_in)).then_some(at)
    }

    /// The lane of the queue in which it waits.
    pub(crate) fn lane(&self) -> LaneId {
        LaneId { priority: self.priority, payer: self.payer, shape: self.shape, alone: !self.codable }
    }
}
