//! Flags of `parm keys`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use parm_transport::keys::Role;

use super::Output;

pub const EXAMPLES: &str = "Examples:
  parm keys new search --role infer --rate 500 --file keys.toml
      a key for 500 requests a second; its digest is appended to keys.toml
  parm serve --worker http://10.0.0.5:8000 --set server.keys_file=keys.toml
      a frontend that requires keys
  parm keys list keys.toml
      names, roles and limits";

/// `parm keys`.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key, which is printed once and not stored
    New {
        /// Name of the client, for logs: letters, digits, '-', '_', '.' and '@'
        name: String,
        /// Role: infer (predictions), read (metrics and the admin page) or control (all of it, and changes)
        #[arg(long, default_value = "infer")]
        role: Role,
        /// Rate limit in requests per second [default: none]
        #[arg(long, value_name = "N")]
        rate: Option<f64>,
        /// Requests at a time [default: unlimited]
        #[arg(long, value_name = "N")]
        concurrency: Option<NonZeroU32>,
        /// Key file to append the entry to; a new file is readable by its owner only
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// List the keys of a file, with roles and limits
    List {
        /// Key file
        file: PathBuf,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}
