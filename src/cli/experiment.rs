//! Flags of `parm experiment`.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::Args;

use super::Output;
use super::grid::Grid;

pub const EXAMPLES: &str = "Examples:
  parm experiment lab/experiments/tail.toml
      with real processes; the report is results/tail/report.html
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
    /// Policy, built in or of the file, instead of the file's (repeat)
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Scenario, built in or of the file, instead of the file's (repeat)
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Profile of `parm simulate --list`, instead of the file's scenarios (repeat)
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Load, as a share of the capacity of the deployed instances, instead of the file's (repeat)
    #[arg(long, value_name = "SHARE")]
    pub load: Vec<f64>,
    /// Queries in a run, instead of the file's
    #[arg(long, value_name = "N")]
    pub queries: Option<NonZeroU64>,
    /// Runs of each kind, instead of the file's
    #[arg(long, value_name = "N")]
    pub repeats: Option<NonZeroU32>,
    /// Seed of arrivals, service times and faults, instead of the file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub grid: Grid,
}
