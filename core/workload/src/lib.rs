//! The workload: arrivals of queries, service times and faults, in one description for all components.
//!
//! Clients, workers, the simulator and experiments use the same description, so this crate depends only on [`Random`] and
//! durations. [`arrivals`] gives the send times, [`Pattern`] their shape at any rate, and [`Scenario`] combines arrivals
//! and faults under a name. [`Outcome`] names the ways in which a query ends.
//!
//! [`Faults`] is a list in a configuration file. [`Schedule`] applies it for a seed and a number of instances. It is a
//! pure function of (instance, moment), so every policy of an experiment faces the same faults and a run can be repeated.
//! Only a CPU quota depends on earlier runs. Run times can also follow the query: [`Schedule::length`].
//! `fault` is the file format; `when` and `targets` give the times and the instances; `spans`, `episodes` and `shuffles`
//! turn them into stretches of time; `pace` replays measured factors, and `quota` limits run time; `schedule` gives the
//! condition of an instance; `progress` computes when a run ends. `clock` is the time of all of them, `distribution` and
//! `service` give service times, and `files` and `numbers` read measurements. `profiles` has those that are built in. [`chat`] is a replica that answers chats.

pub mod arrivals;
pub mod chat;
pub mod clock;
pub mod distribution;
mod episodes;
mod error;
mod fault;
mod files;
mod numbers;
mod outcome;
mod pace;
mod pattern;
mod profiles;
mod progress;
mod quota;
mod scenario;
mod schedule;
pub mod service;
mod shuffles;
mod spans;
mod targets;
mod when;

pub use error::Error;
pub use fault::{By, Fault, Faults};
pub use numbers::numbers;
pub use outcome::Outcome;
pub use parm_random::Random;
pub use pattern::Pattern;
pub use profiles::PROFILES;
pub use progress::Ending;
pub use scenario::{SCENARIOS, Scenario};
pub use schedule::{Condition, Schedule, State};
pub use targets::Targets;
pub use when::When;
