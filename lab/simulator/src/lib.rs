//! The dispatcher in virtual time: what a policy does to the tail, before anybody pays for it.
//!
//! The very state machine that serves (`parm_dispatch`) is driven by an event heap instead of by sockets, with arrivals,
//! service times and faults from `parm_workload`. What is worth running, and what may be said of it, is for others to know:
//! here a [`Run`] becomes a [`Tally`]. Reading order: `run`, `engine`, `cluster` (its instances), `calendar` and `in_flight`
//! (what is to come and what is under way), `comparisons` (whose answers are wrong), `tally` (what is kept), `witness`
//! (what else can be seen of it). `tenants` is a simulation of its own, of who gets which share of the instances.

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
pub use progress::{Progress, Quiet};
pub use run::{Fleet, Run, Shape, StandIn};
pub use tally::{BLOCKS, Ended, Outcome, STRETCHES, Tally};
pub use tenants::{Bill, Demand, Tenancy, Tenant};
pub use witness::{Answered, Execution, Witness};
