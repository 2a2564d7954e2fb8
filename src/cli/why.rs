//! Flags of `parm why`.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use super::identity::Identity;

pub const EXAMPLES: &str = "Examples:
  parm why http://127.0.0.1:8003
      a running frontend, from a recording of one minute
  parm why busy-hour.jsonl --config parm.toml
      a recording, with the settings of its frontend";

/// `parm why`.
#[derive(Debug, Args)]
pub struct Why {
    /// Recording of `parm record`, or address of a frontend's admin API
    #[arg(value_name = "FILE | URL")]
    pub what: String,
    /// Length of the recording of a running frontend, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Model to examine, if there are several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Configuration of the recorded frontend (TOML), for its dispatch settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Policy of the recorded frontend [default: that of a running one, hedge for a file]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub policy: Option<String>,
    /// Seed of the replays
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replays of each variant, with different seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// Key for the admin API
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
