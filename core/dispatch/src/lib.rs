//! Dispatcher of parm: a pure state machine that chooses instances for jobs and answers for queries.
//!
//! It handles ids, shapes, sizes and times, never tensor bytes. It has no clock, no I/O and no randomness except a
//! seed. Three drivers run the same code: tokio in `parm serve`, an event heap in `parm simulate`, and proptest in
//! the tests.
//!
//! The layers are described at [`Dispatcher`]. [`replay`] plays the latest events before a panic.

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
pub use measure::bound::most_in_a_row;
