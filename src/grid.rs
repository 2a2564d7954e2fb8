//! Grids on the command line: shares and joins of experiments and matrices.

use std::path::PathBuf;

use clap::Args;
use parm_grids::{Joined, Share};

/// Problems of a join that are printed.
const PRINTED: usize = 20;

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

/// The task of a command with these flags.
pub enum Task {
    /// Run everything as one process.
    Whole,
    /// Run a share of the cells.
    Run(Share),
    /// Join folders.
    Join(Vec<PathBuf>),
}

impl Task {
    /// Reads the flags.
    pub fn of(flags: &Grid) -> Self {
        match flags.share {
            _ if !flags.join.is_empty() => Self::Join(flags.join.clone()),
            Some(share) => Self::Run(share),
            None => Self::Whole,
        }
    }
}

/// Reports what a join left out. Returns whether all cells have results.
pub fn reported(joined: &Joined) -> bool {
    joined.problems.iter().take(PRINTED).for_each(|problem| eprintln!("{problem}"));
    if joined.problems.len() > PRINTED {
        eprintln!("and {} more", joined.problems.len() - PRINTED);
    }
    match joined.foreign.as_slice() {
        [] => {}
        [first, rest @ ..] => eprintln!(
            "ignored {} result files of other settings, such as {}",
            rest.len() + 1,
            first.display()
        ),
    }
    joined.problems.is_empty()
}
