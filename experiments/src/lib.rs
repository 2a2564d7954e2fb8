//! Experiments with real processes, and reports of them and of simulated ones.
//!
//! An experiment file means the same here and in the simulator: the same cells, arrivals, faults and seeds, the same
//! statistics. Reading order: `experiment` (which run comes when), `run` (one run, from processes to samples), `fleet`,
//! `worker`, `frontend` and `process` (who takes part), `drive` and `reference` (what is asked, and what came of it),
//! `validity` (whether that says anything), `results` (what is kept), `html` (what is shown of it).

mod drive;
mod error;
mod experiment;
mod fleet;
mod frontend;
pub mod html;
mod page;
mod process;
mod reference;
mod results;
mod run;
mod stop;
mod validity;
mod worker;

pub use drive::Sample;
pub use error::Error;
pub use experiment::{Laboratory, Observer, Position, machine};
pub use results::{Folder, Mode, Results, RunRecord};
pub use stop::Stop;
pub use validity::Validity;
