//! Flags of commands whose runs are cells of a grid.

use std::path::PathBuf;

use clap::Args;
use parm_grids::Share;

/// Flags of a grid. See docs/grids.md.
#[derive(Debug, Args)]
pub struct Grid {
    /// Run share I of N, counted from 0: every Nth cell, without those that have a result
    #[arg(long, value_name = "I/N", conflicts_with = "join")]
    pub share: Option<Share>,
    /// Join the results in these folders, check them, and report what is missing
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    pub join: Vec<PathBuf>,
}
