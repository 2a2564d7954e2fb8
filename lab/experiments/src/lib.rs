//! Experiments: every policy under every scenario at every load, in virtual time or with real processes.
//!
//! An experiment file means the same in both modes: the same cells, arrivals, faults, seeds and statistics. Reading
//! order: `config` (the file), `contender` (its predefined policies), `cell` and `experiment` (the runs, and their
//! simulation), `grid` (the runs on many machines), `verdict`, `blocks`, `spectrum` and `report` (the conclusions).
//!
//! With real processes: `processes` (their part of the file), `laboratory` (the order of runs), `run` (one run, from
//! processes to samples), `fleet`, `worker`, `frontend` and `process` (the processes), `drive` and `reference` (the load
//! and the right answers), `validity` (whether a run counts), `results` (the files), `html` (the page).

mod blocks;
mod cell;
mod config;
mod contender;
mod drive;
mod error;
mod experiment;
mod fleet;
mod frontend;
mod grid;
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
mod validity;
mod verdict;
mod worker;

pub use cell::{Case, Cell};
pub use config::{Config, StandInCost, line_of};
pub use contender::{Contender, POLICIES};
pub use drive::Graded;
pub use error::Error;
pub use experiment::Experiment;
pub use grid::GRID;
pub use laboratory::{Laboratory, Observer, Position, machine};
pub use processes::{Processes, Remote};
pub use report::{Report, Row};
pub use results::{Folder, Mode, RAW_COLUMNS, Results, RunName, RunRecord};
pub use spectrum::{Point, Spectrum};
pub use stop::Stop;
pub use validity::Validity;
pub use verdict::{Accuracy, Verdict};
