//! Flags of `parm record`.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use super::identity::Identity;

pub const EXAMPLES: &str = "Examples:
  parm serve --models models --admin 127.0.0.1:8003
  parm record --frontend http://127.0.0.1:8003 --seconds 600 --file busy-hour.jsonl
      ten minutes
  parm record --summary busy-hour.jsonl
      the contents of a recording and its faults
  parm serve --models models --record all-day.jsonl
      from the start of a frontend";

/// `parm record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Address of the frontend's admin API: http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present = "summary")]
    pub frontend: Option<String>,
    /// Key for the admin API, of the role read or control
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Length in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// File to write, which must not exist
    #[arg(long, value_name = "FILE", default_value = "recording.jsonl")]
    pub file: PathBuf,
    /// Summarize this recording, without recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frontend", "file"])]
    pub summary: Option<PathBuf>,
    /// Model to summarize, if the recording has several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}
