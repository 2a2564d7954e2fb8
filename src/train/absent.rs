//! `parm train` of a build that has no trainer.

use anyhow::anyhow;

use crate::Failure;
use crate::cli::train::TrainCommand;

/// Says how to get one; status 64.
pub fn main(_: &TrainCommand) -> Result<(), Failure> {
    Err(Failure::Configuration(anyhow!(
        "this build cannot train, to keep servers small: build with `cargo build --release --features train`"
    )))
}
