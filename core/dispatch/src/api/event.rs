//! Events: the driver's reports to the dispatcher.

use std::num::NonZeroU16;

use parm_tokens::{Grant, Token};

use super::{
    Cost, GroupId, InForce, InstanceId, JobId, Output, Pair, PoolId, PoolSettings, QueryId, ShapeId, ShareId,
    Site, Time,
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
    /// Any outcome, but approximate answers for at most this many thousandths of the queries with this bound. Only
    /// the policy `stand-in` counts them; other policies treat it as `Exact`.
    AtMost(u16),
}

/// One row that wants a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuerySpec {
    /// The driver's name for it.
    pub id: QueryId,
    /// The pool of the deployed model.
    pub pool: PoolId,
    /// Shape of its inputs.
    pub shape: ShapeId,
    /// The deadline.
    pub deadline: Time,
    /// Triton's priority: 1 is the highest; 0 means the default.
    pub priority: u8,
    /// The configured share that pays for it. Without one the pool pays.
    pub share: Option<ShareId>,
    /// Whether it may be answered with an approximation.
    pub accept: Accept,
    /// False for a query that must be served alone, because its values are not finite or extreme: mixed with
    /// others it would spoil them.
    pub codable: bool,
    /// Size of its input in any unit, as far as run times may depend on it: 1 if they do not.
    #[serde(default = "one")]
    pub size: u32,
    /// Whether it may share a batch with queries of its shape that have another size: the driver pads the shorter ones.
    /// The queries of a shape agree on it.
    #[serde(default)]
    pub padded: bool,
}

fn one() -> u32 {
    1
}

/// How a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The instance broke, refused or lost the job. Another instance may answer.
    Instance,
    /// The instance did not get the job. Another may run it, even if it must not run twice.
    Unsent,
    /// The instance reports that its model failed. The instance is at fault unless the query fails at another one
    /// too; then the query is at fault.
    Model,
    /// The request is at fault: no other instance would answer it either.
    Query,
    /// The job did not begin, because its query can no longer run twice: its client has sent too much to hold. The
    /// instance is not at fault, and the query gets no further jobs.
    Withheld,
}

/// The models of one pool that an instance can run. An instance with parities only is a dedicated parity instance.
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
    /// Jobs of the pool that it may hold at a time, if they are fewer than its slots.
    #[serde(default)]
    pub at_once: Option<NonZeroU16>,
}

/// An instance that can take jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The models it serves, each pool once.
    pub serves: Vec<Served>,
    /// Jobs that it runs at a time; 1 unless configured. A hung instance holds no more than these.
    pub slots: u16,
    /// Whether `slots` is the most, and the jobs that it runs best at a time are learned.
    #[serde(default)]
    pub learns: bool,
    /// Its node and zone, as far as discovery knows them.
    pub site: Site,
}

/// The comparison of a prediction with its parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The prediction's slot in its group.
    pub slot: u8,
    /// Its row there.
    pub row: u32,
    /// Whether both predict the same class, or values within the tolerance.
    pub agrees: bool,
}

/// The driver's check of a stand-in's answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Judgement {
    /// It can be given. The confidence is in 0..=1; outputs other than classes have none.
    Fit(Option<f32>),
    /// It cannot be given, for example because it has bad values or is gone.
    Unfit,
}

/// The use that other frontends make of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Jobs that other frontends hold there.
    pub jobs: u16,
    /// This frontend uses the instance first; it is its *home*.
    pub home: bool,
}

impl Default for Elsewhere {
    /// No other frontend uses the instance.
    fn default() -> Self {
        Self { jobs: 0, home: true }
    }
}

impl Elsewhere {
    /// Whether this frontend can use the instance without competing with another.
    pub(crate) fn is_idle(self) -> bool {
        self.home && self.jobs == 0
    }
}

/// Something the dispatcher reacts to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A query came in.
    QueryArrived(QuerySpec),
    /// The client of a query cancelled.
    QueryCancelled(QueryId),
    /// An instance finished a job; its outputs wait in the driver's slab under the job's id.
    JobCompleted(JobId),
    /// An instance failed a job.
    JobFailed(JobId, Failure),
    /// An instance is ready for work.
    InstanceJoined(InstanceId, InstanceSpec),
    /// An instance gives tokens from now on, on a new connection. It receives no job without a token.
    TokensOffered(InstanceId),
    /// An instance that gives tokens runs this many jobs at a time for all frontends together.
    SlotsStated(InstanceId, NonZeroU16),
    /// An instance granted a token.
    TokenGranted(InstanceId, Grant),
    /// An instance recalls a token, unless it is used.
    TokenRecalled(InstanceId, Token),
    /// An instance has no other frontend: no tokens are needed, and it runs this many jobs at a time. Without a
    /// number it is shared again.
    TokensShared(InstanceId, Option<NonZeroU16>),
    /// The connection on which an instance granted tokens is gone, and the tokens with it. Jobs need no token from
    /// now on.
    TokensEnded(InstanceId),
    /// The use that other frontends make of an instance changed.
    HeldElsewhere(InstanceId, Elsewhere),
    /// An instance drains: it receives no new job, and completes those that it holds.
    InstanceDraining(InstanceId),
    /// An instance is gone, and its jobs with it.
    InstanceLeft(InstanceId),
    /// A probe was answered: of an instance, or of one pool's model on it.
    ProbeAnswered(InstanceId, Option<PoolId>, bool),
    /// The time of an [`Action::WakeAt`](super::Action::WakeAt) has come. Early and spurious wakes are harmless.
    TimerFired,
    /// The driver encoded a group's parity queries.
    GroupEncoded(GroupId),
    /// The driver could not encode a group. The group has no parities.
    GroupFailed(GroupId),
    /// The driver decoded the slot of a query, with this confidence in 0..=1 where the code gives one.
    #[allow(missing_docs)] // the names say it
    SlotDecoded { group: GroupId, query: QueryId, confidence: Option<f32> },
    /// The driver could not decode the slot of a query, for example because a parity had bad values.
    #[allow(missing_docs)] // the names say it
    SlotFailed { group: GroupId, query: QueryId },
    /// The driver compared a group's predictions with its parities. Predictions that it could not compare are
    /// missing.
    Compared(GroupId, Vec<Verdict>),
    /// The driver checked a stand-in's answer.
    Judged(QueryId, Output, Judgement),
    /// The driver compared a prediction with its stand-in: whether they agree; `None` if it could not compare
    /// them.
    Checked(Pair, Option<bool>),
    /// A worker measured the cost of a pool's stand-in. Observed service times replace it later.
    StandInCost(PoolId, Cost),
    /// A pool is set up, or its settings or their effect changed. Queries under way are not affected.
    #[allow(missing_docs)] // the names say it
    SettingsChanged { pool: PoolId, settings: Box<PoolSettings>, in_force: Box<InForce> },
    /// A pool serves a new version of another pool's model: the approximate answers of both count as one model's.
    #[allow(missing_docs)] // the names say it
    VersionAdded { pool: PoolId, predecessor: PoolId },
    /// The model is unloaded: queued queries are rejected, running jobs still answer theirs.
    PoolRemoved(PoolId),
}

impl Event {
    /// Settings for a pool whose settings take effect as they are.
    pub fn settings(pool: PoolId, settings: PoolSettings) -> Self {
        let in_force = Box::new(InForce::as_wished(&settings));
        Self::SettingsChanged { pool, settings: Box::new(settings), in_force }
    }
}

impl Served {
    /// All models of a pool.
    pub const fn all(pool: PoolId) -> Self {
        Self { pool, deployed: true, parity: true, backup: true, stand_in: true, at_once: None }
    }

    /// The deployed model only, as on a server without parity models.
    pub const fn deployed(pool: PoolId) -> Self {
        Self { pool, deployed: true, parity: false, backup: false, stand_in: false, at_once: None }
    }

    /// The stand-in only: outages of the deployed model spare it.
    pub const fn stand_in(pool: PoolId) -> Self {
        Self { pool, deployed: false, parity: false, backup: false, stand_in: true, at_once: None }
    }
}
