//! Experiments: every policy under every scenario at every load, in virtual time or with real processes.
//!
//! An experiment file means the same in both modes: the same cells, arrivals, faults, seeds and statistics. Reading order:
//! `config` (the file), `cell` and `experiment` (the runs, and their simulation, on many machines too),
//! `verdict` (the conclusions, also as text), `results` (the files).
//!
//! With real processes: `laboratory` (the order of runs, one run from processes to a tally, and the right answers) and
//! `processes` (workers and frontends).

mod cell;
mod config;
mod experiment;
mod laboratory;
mod processes;
mod results;
mod verdict;

pub use cell::{Case, Cell, Contender, POLICIES};
pub use config::{Config, Processes, StandInCost, line_of};
pub use experiment::{Experiment, GRID};
pub use laboratory::{Connect, Laboratory, Observer, Position, Validity, machine};
pub use results::{Folder, Mode, RAW_COLUMNS, Results, RunName, RunRecord};
pub use verdict::{ByOutcome, Point, Report, Row, Verdict};
