//! The workload: when queries arrive, how long instances take, and what goes wrong, in one description for all.
//!
//! Clients send by it, workers obey it, the simulator lives through it, and experiments hand the same to all three; so it
//! depends on nothing else but [`Random`]. [`arrivals`] says when, [`Pattern`] in which shape whatever the rate, [`Scenario`] puts arrivals
//! and faults together under a name.
//!
//! A [`Faults`] is a list in a configuration file. [`Schedule`] is what it means for a seed and a number of instances: a
//! pure function of (instance, moment), so every policy of an experiment faces the same faults and a run can be repeated.
//! `fault` is the file format; `when` and `targets` say at what times and to whom; `spans`, `episodes` and `shuffles` turn
//! them into stretches of time; `schedule` answers what holds for an instance; `progress` says when a run ends under it.
//! `clock` is the time that they speak of, `distribution` and `service` say how long things take.

pub mod arrivals;
pub mod clock;
pub mod distribution;
mod episodes;
mod error;
mod fault;
mod pattern;
mod progress;
mod scenario;
mod schedule;
pub mod service;
mod shuffles;
mod spans;
mod targets;
mod when;

pub use error::Error;
pub use fault::{Fault, Faults};
pub use parm_random::Random;
pub use pattern::Pattern;
pub use progress::Ending;
pub use scenario::{SCENARIOS, Scenario};
pub use schedule::{Condition, Schedule, State};
pub use targets::Targets;
pub use when::When;
