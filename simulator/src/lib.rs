//! The dispatcher in virtual time: what a policy does to the tail, before anybody pays for it.
//!
//! The very state machine that serves (`parm_frontend::dispatch`) is driven by an event heap instead of by sockets, with
//! arrivals from `parm_loadgen`, service times and faults from `parm_faults`. Reading order: `config` (what an experiment
//! file says), `contender` and `scenario` (its ready-made policies and faults), `cell` and `experiment` (every policy through every
//! scenario at every load), `run` and `engine` (one run), `cluster` (its instances), `comparisons` (whose answers are
//! wrong), `tally` and `blocks` (what is kept of it), `witness` (what else can be seen of it), `verdict`, `spectrum`,
//! `timeline` and `report` (what may be said of it).

mod blocks;
mod calendar;
mod cell;
mod cluster;
mod comparisons;
pub mod config;
mod contender;
mod engine;
mod error;
mod experiment;
mod in_flight;
mod pattern;
mod processes;
mod report;
mod run;
mod scenario;
mod spectrum;
mod tally;
mod timeline;
mod verdict;
mod witness;

pub use cell::Cell;
pub use config::Config;
pub use contender::{Contender, POLICIES};
pub use error::Error;
pub use experiment::{Experiment, Progress, Quiet};
pub use parm_frontend::dispatch::PolicyKind;
pub use pattern::Pattern;
pub use processes::{Processes, Remote};
pub use report::{Report, Row};
pub use run::{Run, Shape};
pub use scenario::{SCENARIOS, Scenario};
pub use spectrum::{Point, Spectrum};
pub use tally::{Ended, Outcome, Tally};
pub use timeline::{Band, Kind, Timeline};
pub use verdict::{Accuracy, Estimate, Verdict};
pub use witness::{Answered, Execution, Witness};
