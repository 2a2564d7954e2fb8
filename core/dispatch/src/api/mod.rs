//! Events, actions, ids and settings: the language between the dispatcher and its drivers.
//!
//! This is the lowest layer. It names no other folder of the crate, so a driver can be written against it alone.

mod action;
mod counters;
mod event;
mod ids;
mod payer;
mod reading;
mod settings;
mod site;
mod time;

pub(crate) use parm_settings::{
    BatchSize, BudgetSettings, Coding, CodingSettings, Cost, EjectionSettings, Fraction, GraceSettings,
    HedgeSettings, InForce, InOutage, Placement, PolicyKind, PoolSettings, ReplicateSettings,
    StandInSettings, Unsure, Usual,
};
pub use parm_shares::{Account, Terms};
pub use parm_tokens::{Class, Grant, Note, Order, Token};

pub use action::{
    Action, Actions, Answer, Comparison, JobSpec, Output, Pair, Part, Reason, Recovery, Reject, Role, Rows,
    Source, Step, Urgency,
};
pub use counters::Counters;
pub use event::{Accept, Elsewhere, Event, Failure, InstanceSpec, Judgement, QuerySpec, Served, Verdict};
pub use ids::{
    CardId, GroupId, InstanceId, JobId, NodeId, PoolId, ProcessId, QueryId, ShapeId, ShareId, ZoneId,
};
pub use payer::{Payer, Wanted};
pub use reading::{GroupsReading, Held, InstanceReading, LatencyReading, OpenGroup, PoolReading, PoolStatus};
pub use settings::Settings;
pub use site::Site;
pub(crate) use site::{Apart, Sites, farthest};
pub use time::Time;
pub(crate) use time::times;
