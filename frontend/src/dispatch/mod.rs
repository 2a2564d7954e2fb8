//! The dispatcher: a pure state machine that decides which instance runs what, and what each query is answered with.
//!
//! It handles ids, shapes, sizes and times, never tensor bytes; it has no clock, no I/O and no randomness. Three
//! drivers run the very same code: tokio in `parm serve`, an event heap in `parm simulate`, proptest in the tests.

mod action;
mod event;
mod ids;
mod settings;
mod time;

pub use action::{Action, Actions, Answer, Job, Part, Recovery, Reject, Role, Rows, Source};
pub use event::{Accept, Event, Failure, InstanceSpec, Query, Served};
pub use ids::{GroupId, InstanceId, JobId, NodeId, PoolId, QueryId, ShapeId};
pub use settings::{
    BatchSettings, BudgetSettings, EjectionSettings, Fraction, HedgeSettings, NotAFraction, PolicyKind,
    PoolSettings, ReplicateSettings, Settings,
};
pub use time::Time;
