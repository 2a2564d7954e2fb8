//! Events, actions, ids and settings: the language between the dispatcher and its drivers.
//!
//! This is the lowest layer. It names no other folder of the crate, so a driver can be written against it alone.

mod action;
mod cost;
mod counters;
mod event;
mod ids;
mod in_force;
mod payer;
mod reading;
pub mod recording;
mod settings;
mod site;
mod time;

pub use parm_shares::{Account, Terms};
pub use parm_tokens::{Class, Grant, Note, Order, Token};

pub use action::{
    Action, Actions, Answer, Comparison, JobSpec, Output, Pair, Part, Reason, Recovery, Reject, Role, Rows,
    Source, Step, Urgency,
};
pub use cost::Cost;
pub use counters::Counters;
pub use event::{Accept, Elsewhere, Event, Failure, InstanceSpec, Judgement, QuerySpec, Served, Verdict};
pub use ids::{
    CardId, GroupId, InstanceId, JobId, NodeId, PoolId, ProcessId, QueryId, ShapeId, ShareId, ZoneId,
};
pub use in_force::{Coding, InForce};
pub use payer::{Payer, Wanted};
pub use reading::{EndedGroup, Held, InstanceReading, LatencyReading, OpenGroup, PoolReading, PoolStatus};
pub use settings::{
    AgreementSettings, BatchSettings, BatchSize, BudgetSettings, CodingSettings, DetectionSettings,
    EjectionSettings, Factor, Fraction, GraceSettings, HedgeSettings, InOutage, NotAFactor, NotAFraction,
    ParmPlusSettings, Placement, PolicyKind, PoolSettings, ReplicateSettings, Settings, StandInSettings,
    TokenSettings, Unsure, Usual, removed, was_removed,
};
pub use site::Site;
pub(crate) use site::{Apart, Sites, farthest};
pub use time::Time;
pub(crate) use time::times;
