//! The dispatcher in virtual time: predicts the tail latency of a policy without a cluster.
//!
//! An event heap drives the same state machine that serves queries (`parm_dispatch`), with arrivals, service times and
//! faults from `parm_workload`. A [`Run`] becomes a [`Tally`]; choosing runs and interpreting tallies is left to
//! `experiments` and `tuner`. Reading order: `run`, `engine`, `cluster` (the instances), `calendar` and `in_flight`
//! (future events and unanswered queries), `comparisons` (wrong answers), `tally` (the results) and `witness` (single
//! events). `tenants` is a separate simulation of how tenants share instances.

mod calendar;
mod cluster;
mod comparisons;
mod engine;
mod error;
mod fleet;
mod front;
mod in_flight;
mod neighbours;
mod progress;
mod run;
mod tally;
mod tenants;
mod witness;

pub use error::Error;
pub use parm_workload::Outcome;
pub use progress::{Progress, Quiet};
pub use run::{Fleet, Lengths, Run, Shape, StandIn};
pub use tally::{BLOCKS, Ended, KeptTally, STRETCHES, Tally};
pub use tenants::{Bill, Demand, Tenancy, Tenant};
pub use witness::{Answered, Execution, Witness};
