//! The dispatcher: a pure state machine that decides which instance runs what, and what each query is answered with.
//!
//! It handles ids, shapes, sizes and times, never tensor bytes; it has no clock, no I/O and no randomness but a seed. Three
//! drivers run the very same code: tokio in `parm serve`, an event heap in `parm simulate`, proptest in the tests.
//!
//! [`recording`] is what happened, line by line: what a frontend writes, and what replays and fits read.

mod api;
mod measure;
mod policy;
mod state;
mod turn;

mod moves;
mod placing;
mod reactions;
mod rules;

mod dispatcher;
mod observe;
pub mod replay;

pub use api::*;
pub use dispatcher::Dispatcher;
