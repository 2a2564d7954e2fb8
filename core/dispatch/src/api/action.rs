//! Actions: the dispatcher's requests to its driver.
//!
//! Every answer to a query and every job leaves the dispatcher as an [`Action`]. The driver performs them in
//! order.

use std::time::Duration;

use parm_settings::recording::RecordedRole;
use parm_tokens::{Class, Order, Token};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{GroupId, InstanceId, JobId, Payer, PoolId, QueryId, Time, Wanted};

/// The queries of one batch, in row order. Two fit inline in the room of a `Vec`: most batches have one.
pub type Rows = SmallVec<[QueryId; 2]>;

/// The model that a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The deployed model, on queries that no other instance holds. A retry is such a job too.
    Deployed,
    /// The deployed model again, on queries that another instance already has (a hedge or a replica).
    Copy,
    /// Parity model `0..r`, on a group's parity query.
    Parity(GroupId, u8),
    /// The cheaper model of the `approximate-backup` policy.
    Backup,
    /// The stand-in: a cheaper model, on queries that other instances hold.
    StandIn(Urgency),
}

/// Urgency of a stand-in. A worker runs a spare one behind all queries, and a late one before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// None of its queries is late: it uses idle time only.
    Spare,
    /// Its queries are late.
    Late,
}

/// A job for one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name.
    pub id: JobId,
    /// The instance that runs it.
    pub instance: InstanceId,
    /// The model pool.
    pub pool: PoolId,
    /// Which of the pool's models.
    pub role: Role,
    /// The share that pays for it.
    pub payer: Payer,
    /// Its class in the worker's queue, among the jobs of other frontends.
    pub class: Class,
    /// The token to send with it, if the instance gives tokens.
    pub token: Option<Token>,
}

/// Origin of an output that a decoder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The prediction of this slot's member.
    Slot(u8),
    /// The output of this parity model.
    Parity(u8),
}

/// An output that has arrived: a row of a job's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its role in the code.
    pub source: Source,
    /// The job that made it; not released before the group is forgotten.
    pub job: JobId,
    /// Its row there.
    pub row: u32,
}

/// A request to decode: the missing query and the outputs that have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The group.
    pub group: GroupId,
    /// The query whose prediction is missing.
    pub query: QueryId,
    /// Its slot in the group.
    pub slot: u8,
    /// Slots of this row of the group that hold a query; the others are blank.
    pub members: u8,
    /// The outputs that have arrived.
    pub parts: Vec<Part>,
}

/// One row of a job's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Output {
    /// The job. It is not released while the driver is to read this output.
    pub job: JobId,
    /// The row.
    pub row: u32,
}

/// Two answers to one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pair {
    /// The deployed model's.
    pub prediction: Output,
    /// The stand-in's.
    pub stand_in: Output,
}

/// Predictions to compare with their parities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The group.
    pub group: GroupId,
    /// For each row of it, every output: of its members and of the parities.
    pub rows: Vec<Vec<Part>>,
}

/// Reason for a query without a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reject {
    /// The pool's queue is full.
    QueueFull,
    /// The queue is so long that the query would miss its deadline.
    Overload,
    /// The deadline passed.
    Deadline,
    /// No instance serves the pool.
    NoInstance,
    /// Every allowed attempt failed at its instance.
    Failed,
    /// The request itself was refused by an instance, or the model failed on it at two, or twice at the only one.
    BadQuery,
}

/// Why an instance is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its answers took several times as long as those of other instances.
    Slow,
    /// It fails jobs, or does not answer at all.
    Failing,
    /// Its answers are wrong.
    Wrong,
}

/// The answer to a query.
#[allow(missing_docs)] // the variants say it
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
    /// The stand-in's prediction.
    StandIn { job: JobId, row: u32, confidence: Option<f32> },
    /// The model's configured default answer.
    Default,
    /// No prediction.
    Rejected(Reject),
}

/// A step in the life of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits behind this many others.
    Queued(u32),
    /// It joined a coding group.
    #[allow(missing_docs)] // the names say it
    Grouped { group: GroupId, k: u8, slot: u8 },
    /// It was late, this long after it arrived or was last sent to an instance.
    Late(Duration),
    /// An approximate answer is held back until this time, because the prediction may still come.
    HeldBack(Time),
}

/// A request to the driver. The driver performs them in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run a job on these queries, whose rows are batched in this order (empty for a parity job).
    Run(JobSpec, Rows),
    /// No query waits for this job: drop it if it has not started. The driver still reports its completion or
    /// failure.
    Drop(JobId),
    /// Answer a query; exactly once for each that arrived and was not cancelled.
    Answer(QueryId, Answer),
    /// The outputs (or failure) of this job will not be asked for again.
    Release(JobId),
    /// Probe an instance, or one pool's model on it, off the data path; answer with `ProbeAnswered`.
    Probe(InstanceId, Option<PoolId>),
    /// Encode a group off the dispatch path; answer with `GroupEncoded` or `GroupFailed`. One batch per slot, in slot
    /// order: parity row `i` encodes the `i`-th query of every slot that has one, the other slots being blank.
    Encode(GroupId, Vec<Rows>),
    /// Decode one slot from the outputs that have arrived; answer with `SlotDecoded` or `SlotFailed`.
    Decode(Box<Recovery>),
    /// Compare predictions with their parities, off the dispatch path; answer with `Compared`.
    Compare(Box<Comparison>),
    /// Check a stand-in's answer before this query receives it; answer with `Judged`. Few are given, so the driver
    /// computes nothing before this request.
    Judge(QueryId, Output),
    /// Compare a prediction with its stand-in, off the dispatch path; answer with `Checked`.
    Check(Pair),
    /// An instance's answers for a pool disagree with parities or stand-ins far more often than those of its
    /// peers: report it.
    Suspect(InstanceId, PoolId),
    /// Send an order about tokens to an instance. The message may be lost.
    Tell(InstanceId, Order<Wanted>),
    /// A step of a query that no other action shows. Only while queries are traced.
    Trace(QueryId, Step),
    /// An instance was ejected for this reason: from this pool if it fails, from all pools if it is slow or wrong.
    Ejected(InstanceId, PoolId, Reason),
    /// It should have been ejected, but the remaining instances could not take its load.
    Kept(InstanceId, PoolId, Reason),
    /// An ejected instance was readmitted.
    Readmitted(InstanceId),
    /// The group's inputs, parities and reconstructions will not be asked for again.
    Forget(GroupId),
    /// Send `TimerFired` at this time; replaces the time asked for before.
    WakeAt(Time),
}

/// A buffer of actions that the driver reuses from event to event.
pub type Actions = Vec<Action>;

impl From<Role> for RecordedRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Deployed => RecordedRole::Deployed,
            Role::Copy => RecordedRole::Copy,
            Role::Parity(..) => RecordedRole::Parity,
            Role::Backup => RecordedRole::Backup,
            Role::StandIn(_) => RecordedRole::StandIn,
        }
    }
}
