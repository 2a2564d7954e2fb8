//! The flags of `parm keys`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use parm_transport::keys::Role;

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm keys new search --role infer --rate 500 --file keys.toml
      a key for the clients of team search, 500 requests a second; its digest goes to the end of keys.toml
  parm serve --worker http://10.0.0.5:8000 --set server.keys_file=keys.toml
      a frontend that asks for keys
  parm keys list keys.toml
      who has a key, and what for";

/// `parm keys`.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key; it is shown once and kept nowhere
    New {
        /// Who gets it, for logs: letters, digits, '-', '_', '.' and '@'
        name: String,
        /// What it is for: infer (predictions), read (metrics and the admin page), control (all, and every change)
        #[arg(long, default_value = "infer")]
        role: Role,
        /// Requests a second [default: no limit]
        #[arg(long, value_name = "N")]
        rate: Option<f64>,
        /// Requests at once after a pause [default: those of a second]
        #[arg(long, value_name = "N", requires = "rate")]
        burst: Option<NonZeroU32>,
        /// Requests at a time [default: no limit]
        #[arg(long, value_name = "N")]
        concurrency: Option<NonZeroU32>,
        /// Put its entry at the end of this key file too; a new file is readable for its owner only
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// `text` for people, `json` for programs
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Say who has a key, and what for
    List {
        /// The key file
        file: PathBuf,
        /// `text` for people, `json` for programs
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}
