//! Faults: one description of what goes wrong and when, for real workers and for the simulator.
//!
//! Workers obey it, the simulator lives through it, and experiments hand the same to both; so it depends on nothing else.
//! A [`Faults`] is a list in a configuration file. [`Schedule`] is what it means for a seed and a number of instances: a
//! pure function of (instance, moment), so every policy of an experiment faces the same faults and a run can be repeated.
//! `fault` is the file format; `when` and `targets` say at what times and to whom; `spans`, `episodes` and `shuffles` turn
//! them into stretches of time; `schedule` answers what holds for an instance; `progress` says when a run ends under it.
//! `clock` is the time that they speak of, `draw` their randomness, `distribution` and `service` how long things take.

pub mod clock;
pub mod distribution;
pub mod draw;
mod episodes;
mod error;
mod fault;
mod progress;
mod schedule;
pub mod service;
mod shuffles;
mod spans;
mod targets;
mod when;

pub use error::Error;
pub use fault::{Fault, Faults};
pub use progress::Ending;
pub use schedule::{Condition, Schedule, State};
pub use targets::Targets;
pub use when::When;
