//! The dispatcher: which instance runs a query, when the query gets a copy, and with which answer it ends.
//!
//! **The idea.** A query owns its attempts, and one pure function says what the query needs next. After any event the
//! dispatcher changes its books, marks the queries that the event concerns, asks `step` of each marked query until
//! it waits, and brings wanted attempts and instances with room together. A query that waits is always on the calendar, at its
//! deadline at the latest, so no query can be forgotten. Four things do not pass through `step`: the model's own answer ends its query, a
//! client that leaves ends it without a reply ([`Dispatcher::cancel`]), a full line rejects the new query or a less urgent one, and
//! instances that are slow or out of service get copies that nobody waits for (`Dispatcher::explore`).
//!
//! **Pure.** No clock, runtime, randomness or I/O: the caller passes the time into each call and executes the
//! [`Action`]s that it takes out. The simulator and the random tests drive the same code as the frontend.
//!
//! **Read in this order**: `query` (what a query is), `step` (what it needs), `suits` and `site` (where it runs), `estimate`
//! (speed of instances, rest of runs), `batch` (rows of a job), `policy` (what differs between policies), `bound` and `budget`
//! (limits), `health` (instances that fail), the loop with its parts: `dispatcher`, `attempts`, `matcher`, `learn`; `members`
//! (models and instances come and go), `turns` (shares), `asks` (several frontends); and apart from all of these `coding`,
//! `condition`, what others read: `counters` and `reading`, and what clients of stand-ins keep: `agreement` and `doubt`.
//!
//! **Words.** A *job* is one call of an instance, with a row for each of its queries. An *attempt* is a query's place in a job, or its
//! wish for one. The *usual* time of a run leaves stragglers out; the *expected* time counts them in.
//!
//! **Every model is a pool.** A stand-in and a parity model are models that instances have or have not, and an attempt names its
//! model. Coding is a client of the dispatcher: a [`Coder`] submits parities as queries and offers reconstructions.

mod agreement;
mod asks;
mod attempts;
mod batch;
mod bound;
mod budget;
mod calendar;
mod coding;
mod condition;
mod counters;
mod dispatcher;
mod doubt;
mod estimate;
mod health;
mod instance;
mod learn;
mod matcher;
mod members;
mod model;
mod policy;
mod query;
mod reading;
#[cfg(test)]
mod script;
mod site;
mod step;
mod suits;
mod turns;

pub use agreement::Agreement;
pub use budget::BudgetSettings;
pub use coding::{
    Coder, CodingAction, CodingCounters, CodingSettings, Decode, GroupKey, Joined, Member, OpenGroup,
    parity_instances,
};
pub use condition::Condition;
pub use counters::Counters;
pub use dispatcher::{Action, CancelReason, Dispatcher, End, Row};
pub use doubt::Doubts;
pub use health::HealthSettings;
pub use instance::{InstanceKey, InstanceSpec, Offered};
pub use model::{ModelKey, ModelSettings};
pub use parm_durations::Time;
pub use policy::{Placement, Policy, StandInPolicy};
pub use query::{Accept, Answer, By, Failure, JobKey, QueryKey, Reject, Shape, Submission, Why};
pub use reading::{InstanceReading, ModelReading};
pub use site::Site;
pub use turns::{Payer, ShareKey, Terms};
