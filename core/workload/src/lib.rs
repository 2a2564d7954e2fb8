//! The workload: arrivals of queries, service times and faults, in one description for all components.
//!
//! Clients, workers, the simulator and experiments use the same description, so this crate depends only on [`Random`] and
//! durations. [`arrivals`] gives the send times, and [`Scenario`] combines their [`Pattern`] and faults under a name.
//! [`Outcome`] names the ways in which a query ends.
//!
//! [`Faults`] is a list in a configuration file. [`Schedule`] applies it for a seed and a number of instances. It is a
//! pure function of (instance, moment), so every policy of an experiment faces the same faults and a run can be repeated.
//! Run times can also follow the query: [`Schedule::length`].
//! `fault` is the file format; `spans` and `shuffles` turn it into stretches of time; `schedule` gives the condition of an
//! instance and computes when a run ends. `distribution` and `service` give service times, and `numbers` reads
//! measurements. [`chat`] is a replica that answers chats.

pub mod arrivals;
pub mod chat;
pub mod distribution;
mod error;
mod fault;
mod numbers;
mod outcome;
mod scenario;
mod schedule;
pub mod service;
mod shuffles;
mod spans;

pub use arrivals::Pattern;
pub use error::Error;
pub use fault::{By, Fault, Faults, Targets, When};
pub use numbers::numbers;
pub use outcome::Outcome;
pub use parm_durations::Time;
pub use parm_random::Random;
pub use scenario::{PROFILES, SCENARIOS, Scenario};
pub use schedule::{Condition, Ending, Schedule, State};
