//! Flags of commands whose runs are cells of a grid.

use std::path::PathBuf;

use clap::Args;
use parm_grids::Share;

/// Flags of a grid. See docs/grids.md.
#[derive(Debug, Args)]
pub struct Grid {
    /// Print the cells with keys, estimates and progress, and run none
    #[arg(long, conflicts_with_all = ["share", "join"])]
    pub list: bool,
    /// Run the cell with this key (repeat)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["list", "share", "join"])]
    pub cell: Vec<String>,
    /// Run share I of N, counted from 0; with 0/1 all processes on one folder share all cells
    #[arg(long, value_name = "I/N", conflicts_with = "join")]
    pub share: Option<Share>,
    /// Join the results in these folders, check them, and report what is missing
    #[arg(long, value_name = "FOLDER", num_args = 1..)]
    pub join: Vec<PathBuf>,
    /// Seconds of silence after which another process may take a cell
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=86_400))]
    pub lease: u32,
}
