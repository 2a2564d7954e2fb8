//! The flags of `parm record`.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use super::identity::Identity;

pub const EXAMPLES: &str = "Examples:
  parm serve --models models --admin 127.0.0.1:8003
  parm record --frontend http://127.0.0.1:8003 --seconds 600 --file busy-hour.jsonl
      ten minutes of a running frontend
  parm record --summary busy-hour.jsonl
      what a recording holds, and the faults that are found in it
  parm serve --models models --record all-day.jsonl
      from the start, without the admin API";

/// `parm record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Address of the frontend's admin API: http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present = "summary")]
    pub frontend: Option<String>,
    /// A key that the admin API knows, of the role read or control
    #[arg(long, value_name = "TOKEN", env = "PARM_FRONTEND__ADMIN__TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Length of the recording in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// File to write; one that exists is not overwritten
    #[arg(long, value_name = "FILE", default_value = "recording.jsonl")]
    pub file: PathBuf,
    /// Record nothing; say what is in this recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frontend", "file"])]
    pub summary: Option<PathBuf>,
    /// The model to sum up, where the recording has several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// `text` for people, `json` for programs
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
