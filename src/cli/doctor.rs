//! Flags of `parm doctor`.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use super::identity::Identity;

pub const EXAMPLES: &str = "Examples:
  parm doctor http://127.0.0.1:8003
      a running frontend: slow and ejected instances, failing requests, dispatch settings without effect
  parm doctor http://127.0.0.1:8003 --seconds 60
      the causes of its long tail, from a recording of one minute
  parm doctor parm.toml
      a configuration before serving: ports, engine, models, bundles, workers
  parm doctor models
      a model repository: files, bundles, and whether the engine runs each model
  parm doctor busy-hour.jsonl --config parm.toml
      the causes of a recorded tail, with the settings of its frontend
  parm doctor PARM-0007
      the cause and the remedy of an error; parm doctor codes lists all errors";

/// `parm doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Address of a frontend's admin API, configuration file, model repository, recording of `parm record`, or code of an
    /// error [default: http://127.0.0.1:8003]
    #[arg(value_name = "URL | PATH | CODE")]
    pub what: Option<String>,
    /// Record a running frontend for so many seconds, and name the causes of its tail
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Model of the recording, if it has several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Configuration of the recorded frontend (TOML), for its dispatch settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Policy of the recorded frontend [default: that of a running one, hedge for a file]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub policy: Option<String>,
    /// Seed of the replays of a recording
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replays without each cause, with different seeds
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
