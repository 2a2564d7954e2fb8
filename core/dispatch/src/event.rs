//! What happens to the dispatcher.

use std::num::NonZeroU16;

use parm_tokens::{Grant, Token};

use super::{
    Elsewhere, GroupId, InForce, InstanceId, JobId, Output, Pair, PoolId, PoolSettings, QueryId, ShapeId,
    ShareId, Site, Time,
};
use serde::{Deserialize, Serialize};

/// Whether a client takes an approximate answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accept {
    /// Any outcome.
    #[default]
    Any,
    /// Nothing but predictions of the deployed model (`parm_accept: exact`).
    Exact,
    /// Any outcome, but approximate ones for no more than so many thousandths of the queries that say so. Only the policy
    /// `stand-in` keeps count; under others it means `Exact`.
    AtMost(u16),
}

/// One row that wants a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuerySpec {
    /// The driver's name for it.
    pub id: QueryId,
    /// The deployed model it is for.
    pub pool: PoolId,
    /// Shape of its inputs.
    pub shape: ShapeId,
    /// When its answer is no longer wanted.
    pub deadline: Time,
    /// Triton's priority: 1 is the highest; 0 means the default.
    pub priority: u8,
    /// Who pays for it: a share that is set up, or the pool's own.
    pub share: Option<ShareId>,
    /// Whether it may be answered with an approximation.
    pub accept: Accept,
    /// False for a query that must be served alone: non-finite or absurd values never mix with strangers'.
    pub codable: bool,
}

/// How a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The instance broke, refused or lost the job; another instance may well answer.
    Instance,
    /// The instance says that the model failed on it. That is the instance's fault unless it happens at another too: then
    /// it is the request's.
    Model,
    /// The request is at fault: no other instance would answer it either.
    Query,
}

/// What an instance can run of one pool's models. An instance with parities only is a dedicated parity instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The pool.
    pub pool: PoolId,
    /// It holds the deployed model.
    pub deployed: bool,
    /// It holds the pool's parity models.
    pub parity: bool,
    /// It holds the backup model.
    pub backup: bool,
    /// It holds the pool's stand-in.
    pub stand_in: bool,
}

/// An instance that can take jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The models it serves, each pool once.
    pub serves: Vec<Served>,
    /// Jobs it may hold at a time (1 unless configured): with pull, a hung instance holds this many and no more.
    pub slots: u16,
    /// Where it stands, as far as discovery knows.
    pub site: Site,
}

/// What parities say of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The prediction's slot in its group.
    pub slot: u8,
    /// Its row there.
    pub row: u32,
    /// Whether they predict the same, as far as clients care: the same class, or a value within a tolerance.
    pub agrees: bool,
}

/// What a stand-in costs: the time of a job of so many rows, as a share of that of one query on the deployed model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// For 1, 2, 4 and 8 rows.
    pub rows: [f64; 4],
}

/// What the driver finds of a stand-in's answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Judgement {
    /// It can be given, with this confidence in 0..=1 where there is one.
    Fit(Option<f32>),
    /// It cannot be given: it has bad values, say, or is gone.
    Unfit,
}

/// Something the dispatcher reacts to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A query came in.
    QueryArrived(QuerySpec),
    /// The client of a query went away.
    QueryCancelled(QueryId),
    /// An instance finished a job; its outputs wait in the driver's slab under the job's id.
    JobCompleted(JobId),
    /// An instance failed a job.
    JobFailed(JobId, Failure),
    /// An instance is ready for work.
    InstanceJoined(InstanceId, InstanceSpec),
    /// An instance gives tokens from now on, on a new connection: it is sent no job without one.
    TokensOffered(InstanceId),
    /// An instance gave a token.
    TokenGranted(InstanceId, Grant),
    /// An instance wants a token back, unless it is used.
    TokenRecalled(InstanceId, Token),
    /// An instance that gives tokens is this frontend's alone, who needs none then, and runs so many jobs at a time; or it is not.
    TokensShared(InstanceId, Option<NonZeroU16>),
    /// The connection is gone on which an instance gave tokens, and they with it; it is sent jobs as it comes.
    TokensEnded(InstanceId),
    /// What other frontends have to do with an instance changed.
    HeldElsewhere(InstanceId, Elsewhere),
    /// An instance wants no more work; what it holds will still be completed.
    InstanceDraining(InstanceId),
    /// An instance is gone, and what it held with it.
    InstanceLeft(InstanceId),
    /// A probe that the dispatcher asked for came back: of an instance, or of one pool's model on it.
    ProbeAnswered(InstanceId, Option<PoolId>, bool),
    /// The time of an [`Action::WakeAt`](super::Action::WakeAt) has come (early or spurious wakes are harmless).
    TimerFired,
    /// The driver encoded a group's parity queries.
    GroupEncoded(GroupId),
    /// The driver could not encode a group: it goes without parities.
    GroupFailed(GroupId),
    /// The driver decoded the slot of a query, with this confidence in 0..=1 where the code gives one.
    #[allow(missing_docs)] // the names say it
    SlotDecoded { group: GroupId, query: QueryId, confidence: Option<f32> },
    /// The driver could not decode the slot of a query (a parity with bad values, say).
    #[allow(missing_docs)] // the names say it
    SlotFailed { group: GroupId, query: QueryId },
    /// The driver compared a group's predictions with its parities; those it could not compare are left out.
    Compared(GroupId, Vec<Verdict>),
    /// The driver looked at a stand-in's answer, as it was asked to.
    Judged(QueryId, Output, Judgement),
    /// The driver compared a prediction with its stand-in: whether they say the same, as far as clients care; `None` if it
    /// could not.
    Checked(Pair, Option<bool>),
    /// What a pool's stand-in costs, as a worker measured it; service times that are seen here take its place with time.
    StandInCost(PoolId, Cost),
    /// A pool is set up, or its settings changed, or what comes of them; queries that are under way stay.
    #[allow(missing_docs)] // the names say it
    SettingsChanged { pool: PoolId, settings: Box<PoolSettings>, in_force: Box<InForce> },
    /// A pool serves a new version of the model that another pool serves: approximate answers of both count as one model's.
    #[allow(missing_docs)] // the names say it
    VersionAdded { pool: PoolId, predecessor: PoolId },
    /// The model is unloaded: its queued queries are rejected, what runs is still answered.
    PoolRemoved(PoolId),
}

impl Event {
    /// Other settings for a pool of which nothing else is known.
    pub fn settings(pool: PoolId, settings: PoolSettings) -> Self {
        let in_force = Box::new(InForce::as_wished(&settings));
        Self::SettingsChanged { pool, settings: Box::new(settings), in_force }
    }
}

impl Served {
    /// Everything that a pool has.
    pub const fn all(pool: PoolId) -> Self {
        Self { pool, deployed: true, parity: true, backup: true, stand_in: true }
    }

    /// The deployed model only, as a server that knows nothing of parities.
    pub const fn deployed(pool: PoolId) -> Self {
        Self { pool, deployed: true, parity: false, backup: false, stand_in: false }
    }
}
