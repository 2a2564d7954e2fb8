//! Experiments: every policy through every scenario at every load, in virtual time or with real processes, and what may be
//! said of them.
//!
//! An experiment file means the same either way: the same cells, arrivals, faults and seeds, the same statistics. Reading
//! order: `config` (what a file says), `contender` (its ready-made policies), `cell` and `experiment` (which runs there are,
//! and what simulates them), `verdict`, `blocks`, `spectrum`, `timeline` and `report` (what may be said of them).
//!
//! With real processes: `processes` (their part of the file), `laboratory` (which run comes when), `run` (one run, from
//! processes to samples), `fleet`, `worker`, `frontend` and `process` (who takes part), `drive` and `reference` (what is
//! asked, and what came of it), `validity` (whether that says anything), `results` (what is kept), `html` (what is shown).

mod blocks;
mod cell;
mod config;
mod contender;
mod drive;
mod error;
mod experiment;
mod fleet;
mod frontend;
pub mod html;
mod laboratory;
mod page;
mod process;
mod processes;
mod reference;
mod report;
mod results;
mod run;
mod spectrum;
mod stop;
mod timeline;
mod validity;
mod verdict;
mod worker;

pub use cell::Cell;
pub use config::{Config, StandInCost};
pub use contender::{Contender, POLICIES};
pub use drive::Sample;
pub use error::Error;
pub use experiment::Experiment;
pub use laboratory::{Laboratory, Observer, Position, machine};
pub use processes::{Processes, Remote};
pub use report::{Report, Row};
pub use results::{Folder, Mode, Results, RunRecord};
pub use spectrum::{Point, Spectrum};
pub use stop::Stop;
pub use timeline::{Band, Kind, Timeline};
pub use validity::Validity;
pub use verdict::{Accuracy, Verdict};
