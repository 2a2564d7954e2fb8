//! The dispatcher in virtual time: what a policy does to the tail, before anybody pays for it.
//!
//! The very state machine that serves (`parm_frontend::dispatch`) is driven by an event heap instead of by sockets, with
//! arrivals, service times and faults from `parm_loadgen`. Reading order: `config` (what an experiment file says),
//! `contender` and `scenario` (its ready-made policies and faults), `experiment` (every policy through every scenario at
//! every load), `run` and `engine` (one run), `cluster` (its instances), `comparisons` (whose answers are wrong), `tally` and `blocks` (what is kept of it),
//! `verdict` and `report` (what may be said of it).

mod blocks;
mod calendar;
mod cluster;
mod comparisons;
pub mod config;
mod contender;
mod engine;
mod error;
mod experiment;
mod in_flight;
mod pattern;
mod report;
mod run;
mod scenario;
mod tally;
mod verdict;

pub use config::Config;
pub use contender::{Contender, POLICIES};
pub use error::Error;
pub use experiment::{Experiment, Progress, Quiet};
pub use pattern::Pattern;
pub use report::{Report, Row};
pub use run::{Run, Shape};
pub use scenario::{SCENARIOS, Scenario};
pub use tally::{Outcome, Tally};
pub use verdict::{Estimate, Verdict};
