//! The dispatcher in virtual time: predicts the tail latency of a policy without a cluster.
//!
//! A [`Run`] is played in `parm_world`, which drives the dispatcher that serves queries, and becomes a [`Tally`]. Choosing runs
//! and interpreting tallies is left to `experiments` and `tuner`. Reading order: `run`, `simulation`, `tally` (the results) and
//! `witness` (single events).

mod error;
mod parallel;
mod progress;
mod run;
mod simulation;
mod tally;
mod witness;

pub use error::Error;
pub use parallel::parallel;
pub use parm_workload::Outcome;
pub use progress::{Progress, Quiet};
pub use run::{Lengths, Run, Shape};
pub use tally::{Ended, Tally};
pub use witness::{Answered, Execution, Witness};
