//! Flags of `parm experiment`.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::Args;

use super::Output;
use crate::grid::Grid;

pub const EXAMPLES: &str = "Examples:
  parm experiment lab/experiments/tail.toml
      with real processes; the report is results/tail/report.txt
  parm experiment lab/experiments/tail.toml --simulate
      in virtual time";

/// `parm experiment`.
#[derive(Debug, Args)]
pub struct Experiment {
    /// Experiment file (TOML); flags override it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Use virtual time, not real processes
    #[arg(long)]
    pub simulate: bool,
    /// Keep each query of a simulation in raw/, as with real processes
    #[arg(long, requires = "simulate")]
    pub raw: bool,
    /// Folder for results, without earlier ones [default: results/NAME, numbered if it exists]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    #[command(flatten)]
    pub cases: Cases,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub grid: Grid,
}

/// What is run, with real processes or in virtual time. Flags override the experiment file.
#[derive(Debug, Args)]
pub struct Cases {
    /// Policy or rival, built in or of the file (repeat) [default: those of the file, or all built-in policies]
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Scenario, built in or of the file, or several joined by `+` (repeat) [default: those of the file, or clean, A, B, AB, hang]
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Profile of measured slowness or load, replayed from a public trace, instead of the scenarios (repeat)
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Load, as a share of the capacity of the deployed instances (repeat) [default: that of the file, or 0.3, 0.5, 0.7, 0.85]
    #[arg(long, value_name = "SHARE")]
    pub load: Vec<f64>,
    /// Queries in a run; at most a tenth are its warm-up [default: those of the file, or 1000000]
    #[arg(long, value_name = "N")]
    pub queries: Option<NonZeroU64>,
    /// Runs of each policy, scenario and load, with different seeds [default: those of the file, or 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<NonZeroU32>,
    /// Seed of arrivals, service times and faults [default: that of the file, or 1]
    #[arg(long)]
    pub seed: Option<u64>,
}
