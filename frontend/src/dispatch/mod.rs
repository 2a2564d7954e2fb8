//! The dispatcher: a pure state machine that decides which instance runs what, and what each query is answered with.
//!
//! It handles ids, shapes, sizes and times, never tensor bytes; it has no clock, no I/O and no randomness but a seed. Three
//! drivers run the very same code: tokio in `parm serve`, an event heap in `parm simulate`, proptest in the tests.

mod action;
mod event;
mod ids;
mod settings;
mod time;

mod backup;
mod coding;
mod comparison;
mod dispatcher;
mod extra;
mod feed;
mod intake;
mod outcome;
mod policy;
mod recovery;
mod roster;

mod arena;
mod budget;
mod counters;
mod doubt;
mod group;
mod health;
mod idle;
mod instance;
mod job;
mod load;
mod names;
mod pool;
mod quantile;
mod query;
mod queue;
mod timers;

pub use action::{Action, Actions, Answer, Comparison, Job, Part, Recovery, Reject, Role, Rows, Source};
pub use counters::Counters;
pub use dispatcher::{Dispatcher, Held, PoolStatus};
pub use event::{Accept, Event, Failure, InstanceSpec, Query, Served, Verdict};
pub use ids::{GroupId, InstanceId, JobId, NodeId, PoolId, QueryId, ShapeId};
pub use settings::{
    BatchSettings, BudgetSettings, CodingSettings, DetectionSettings, EjectionSettings, Fraction,
    GraceSettings, HedgeSettings, Needs, NotAFraction, PolicyKind, PoolSettings, ReplicateSettings, Settings,
    Unsure, Usual,
};
pub use time::Time;
