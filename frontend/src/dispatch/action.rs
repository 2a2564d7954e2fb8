//! What the dispatcher asks of its driver.

use super::{GroupId, InstanceId, JobId, PoolId, QueryId, Time};

/// The model that a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The deployed model, on queries.
    Deployed,
    /// The deployed model again, on queries that another instance already has (a hedge, replica or retry).
    Copy,
    /// Parity model `0..r`, on a group's parity query.
    Parity(GroupId, u8),
    /// The cheaper model of the `approximate-backup` policy.
    Backup,
}

/// A job for one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Where to run it.
    pub instance: InstanceId,
    /// The model pool.
    pub pool: PoolId,
    /// Which of the pool's models.
    pub role: Role,
}

/// Why a query got no prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reject {
    /// The pool's queue is full.
    QueueFull,
    /// The deadline passed.
    Deadline,
    /// No instance serves the pool.
    NoInstance,
    /// Every allowed attempt failed at its instance.
    Failed,
    /// The request itself was refused by an instance.
    BadQuery,
}

/// What a query is answered with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The deployed model's prediction: this row of this job's outputs.
    Exact { job: JobId, row: u32 },
    /// The deployed model's prediction from a duplicate: exact, but redundancy made it.
    Hedged { job: JobId, row: u32 },
    /// The decoder's approximation (decoded earlier by the driver under this group and query).
    Reconstructed { group: GroupId, confidence: Option<f32> },
    /// The backup model's prediction.
    Backup { job: JobId, row: u32 },
    /// The model's configured default answer.
    Default,
    /// No prediction.
    Rejected(Reject),
}

/// One thing for the driver to do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run a job on these queries, whose rows are batched in this order (empty for a parity job).
    Run(Job, Vec<QueryId>),
    /// Nobody waits for this job any more: drop it if it has not started. Its completion or failure is still reported.
    Drop(JobId),
    /// Answer a query; exactly once for each that arrived and was not cancelled.
    Answer(QueryId, Answer),
    /// The outputs (or failure) of this job will not be asked for again.
    Release(JobId),
    /// Check whether an instance works, off the data path; answer with `ProbeAnswered`.
    Probe(InstanceId),
    /// Encode this group's members, in slot order, off the dispatch path; answer with `GroupEncoded`.
    Encode(GroupId, Vec<QueryId>),
    /// Decode this query's slot from the group's outputs that are in; answer with `SlotDecoded`.
    Decode(GroupId, QueryId),
    /// The group's inputs, parities and reconstructions will not be asked for again.
    Forget(GroupId),
    /// Send `TimerFired` at this time; replaces the time asked for before.
    WakeAt(Time),
}

/// A buffer of actions that the driver reuses from event to event.
pub type Actions = Vec<Action>;
