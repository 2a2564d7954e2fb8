//! The dispatcher: a pure state machine that decides which instance runs what, and what each query is answered with.
//!
//! It handles ids, shapes, sizes and times, never tensor bytes; it has no clock, no I/O and no randomness but a seed. Three
//! drivers run the very same code: tokio in `parm serve`, an event heap in `parm simulate`, proptest in the tests.
//!
//! [`recording`] is what happened, line by line: what a frontend writes, and what replays and fits read.

mod action;
mod event;
mod ids;
mod in_force;
mod settings;
mod time;

pub mod recording;
pub mod replay;

mod agreement;
mod backup;
mod bound;
mod coding;
mod comparison;
mod dispatcher;
mod extra;
mod feed;
mod intake;
mod outcome;
mod overload;
mod payer;
mod policy;
mod recovery;
mod roster;
mod stand_in;
mod stand_in_answer;

mod ahead;
mod arena;
mod budget;
mod check;
mod chronicle;
mod cost;
mod counters;
mod doubt;
mod group;
mod health;
mod idle;
mod instance;
mod job;
mod load;
mod names;
mod neighbours;
mod pool;
mod quantile;
mod query;
mod queue;
mod reading;
mod reservations;
mod shelf;
mod site;
mod stand_ins;
mod timers;
mod tokens;
mod watch;
mod window;

pub use action::{
    Action, Actions, Answer, Comparison, JobSpec, Output, Pair, Part, Recovery, Reject, Role, Rows, Source,
    Step, Urgency,
};
pub use chronicle::EndedGroup;
pub use counters::Counters;
pub use dispatcher::{Dispatcher, Held, PoolStatus};
pub use event::{Accept, Cost, Event, Failure, InstanceSpec, Judgement, QuerySpec, Served, Verdict};
pub use health::Reason;
pub use ids::{GroupId, InstanceId, JobId, NodeId, PoolId, QueryId, ShapeId, ShareId, ZoneId};
pub use in_force::{Coding, InForce};
pub use neighbours::Elsewhere;
pub use parm_shares::{Account, Terms};
pub use parm_tokens::{Class, Grant, Note, Order, Token};
pub use payer::{Payer, Wanted};
pub use reading::{InstanceReading, OpenGroup, PoolReading};
pub use settings::{
    AgreementSettings, BatchSettings, BudgetSettings, CodingSettings, DetectionSettings, EjectionSettings,
    Factor, Fraction, GraceSettings, HedgeSettings, NotAFactor, NotAFraction, ParmPlusSettings, PolicyKind,
    PoolSettings, ReplicateSettings, Settings, StandInSettings, TokenSettings, Unsure, Usual,
};
pub use site::Site;
pub use time::Time;
