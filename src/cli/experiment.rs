//! The flags of `parm experiment`.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::Args;

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm experiment lab/experiments/tail.toml
      every policy of the file with real processes on this machine; the report is results/tail/report.html
  parm experiment lab/experiments/tail.toml --simulate
      the same in virtual time
  parm experiment lab/experiments/chaos.toml --policy hedge --policy parm+ --repeats 1 --results /tmp/chaos
      a part of it, elsewhere";

/// `parm experiment`.
#[derive(Debug, Args)]
pub struct Experiment {
    /// Experiment file (TOML); flags override it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// In virtual time, instead of with real processes
    #[arg(long)]
    pub simulate: bool,
    /// Folder for results; it must not have any yet [default: results/NAME, numbered where that is taken]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    /// A policy, ready-made or from the file, instead of the file's (repeat)
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// A scenario, ready-made or from the file, instead of the file's (repeat)
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// A load, as a share of what the deployed instances could do, instead of the file's (repeat)
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
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
