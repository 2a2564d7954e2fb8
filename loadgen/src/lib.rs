//! Open-loop load and statistics of latency tails that do not claim more than the samples support.
//!
//! [`run`] sends requests when a schedule says, however slow the earlier ones are, and records latencies from the
//! intended send time; [`chat`] does so for servers of language models. [`report`] gives quantiles with intervals,
//! [`validity`] rejects runs whose sender was late. The crate knows the protocol, not the models.

pub mod chat;
mod error;
pub mod failures;
pub mod grader;
pub mod inputs;
pub mod live;
pub mod outcome;
pub mod pacer;
pub mod recorder;
pub mod report;
pub mod requirement;
pub mod run;
pub mod shape;
pub mod statistics;
pub mod validity;

pub use error::Error;
