//! What the dispatcher asks of its driver.

use std::time::Duration;

use parm_tokens::{Class, Order, Token};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::health::Reason;
use super::{GroupId, InstanceId, JobId, Payer, PoolId, QueryId, Time, Wanted};

/// The queries of one batch, in row order. Two fit inline in the room of a `Vec`: most batches have one.
pub type Rows = SmallVec<[QueryId; 2]>;

/// The model that a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The deployed model, on queries that no other instance has (any more: a retry too).
    Deployed,
    /// The deployed model again, on queries that another instance already has (a hedge or a replica).
    Copy,
    /// Parity model `0..r`, on a group's parity query.
    Parity(GroupId, u8),
    /// The cheaper model of the `approximate-backup` policy.
    Backup,
    /// The stand-in: a cheaper model, on queries that other instances have.
    StandIn(Urgency),
}

/// How urgent a stand-in is. Whoever queues jobs runs a spare one behind any query, and a late one before them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// None of its queries is late: it uses what queries leave over.
    Spare,
    /// Its queries are late.
    Late,
}

/// A job for one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Its name.
    pub id: JobId,
    /// Where to run it.
    pub instance: InstanceId,
    /// The model pool.
    pub pool: PoolId,
    /// Which of the pool's models.
    pub role: Role,
    /// Whose share it is charged to.
    pub payer: Payer,
    /// Where whoever queues jobs puts it, among those of other frontends.
    pub class: Class,
    /// The token to send along, where the instance gives some.
    pub token: Option<Token>,
}

/// Where an output that a decoder reads comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The prediction of this slot's member.
    Slot(u8),
    /// The output of this parity model.
    Parity(u8),
}

/// One output that is in: this row of this job's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is to the code.
    pub source: Source,
    /// The job that made it; not released before the group is forgotten.
    pub job: JobId,
    /// Its row there.
    pub row: u32,
}

/// What to decode, and from what.
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
    /// The outputs that are in.
    pub parts: Vec<Part>,
}

/// One row of a job's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Output {
    /// The job; not released as long as somebody is asked to read this.
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

/// Predictions to compare with what their parities say of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The group.
    pub group: GroupId,
    /// For each row of it, every output: of its members and of the parities.
    pub rows: Vec<Vec<Part>>,
}

/// Why a query got no prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reject {
    /// The pool's queue is full.
    QueueFull,
    /// So much waits that it could hardly be in time.
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

/// What a query is answered with.
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

/// What happened to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It had to wait, behind so many others.
    Queued(u32),
    /// It joined a coding group.
    #[allow(missing_docs)] // the names say it
    Grouped { group: GroupId, k: u8, slot: u8 },
    /// It was late, so long after it arrived or was last given to an instance.
    Late(Duration),
    /// An approximate answer is held back until then, in favour of the prediction.
    HeldBack(Time),
}

/// One thing for the driver to do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run a job on these queries, whose rows are batched in this order (empty for a parity job).
    Run(JobSpec, Rows),
    /// Nobody waits for this job any more: drop it if it has not started. Its completion or failure is still reported.
    Drop(JobId),
    /// Answer a query; exactly once for each that arrived and was not cancelled.
    Answer(QueryId, Answer),
    /// The outputs (or failure) of this job will not be asked for again.
    Release(JobId),
    /// Check whether an instance works, with one pool's model or at all, off the data path; answer with `ProbeAnswered`.
    Probe(InstanceId, Option<PoolId>),
    /// Encode a group off the dispatch path; answer with `GroupEncoded` or `GroupFailed`. One batch per slot, in slot
    /// order: parity row `i` encodes the `i`-th query of every slot that has one, the other slots being blank.
    Encode(GroupId, Vec<Rows>),
    /// Decode one slot from the outputs that are in; answer with `SlotDecoded` or `SlotFailed`.
    Decode(Box<Recovery>),
    /// Compare predictions with their parities, off the dispatch path; answer with `Compared`.
    Compare(Box<Comparison>),
    /// Look at a stand-in's answer that this query may be given: answer with `Judged`. Nothing is computed before it is
    /// asked for, as few are given.
    Judge(QueryId, Output),
    /// Compare a prediction with its stand-in, off the dispatch path; answer with `Checked`.
    Check(Pair),
    /// An instance's answers for a pool disagree with parities or stand-ins far more often than its peers' do: tell
    /// somebody.
    Suspect(InstanceId, PoolId),
    /// Tell an instance that gives tokens what is wished of it. It may get lost.
    Tell(InstanceId, Order<Wanted>),
    /// A step of a query that no other action tells, where somebody follows queries.
    Trace(QueryId, Step),
    /// An instance takes no more work, for this reason: of this pool if it fails, of any if it is slow or wrong.
    Ejected(InstanceId, PoolId, Reason),
    /// It should have been ejected, and the others cannot do without it.
    Kept(InstanceId, PoolId, Reason),
    /// An instance that was ejected takes work again.
    Readmitted(InstanceId),
    /// The group's inputs, parities and reconstructions will not be asked for again.
    Forget(GroupId),
    /// Send `TimerFired` at this time; replaces the time asked for before.
    WakeAt(Time),
}

/// A buffer of actions that the driver reuses from event to event.
pub type Actions = Vec<Action>;
