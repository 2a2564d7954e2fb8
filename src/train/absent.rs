//! Rejects the commands that need the trainer, in a build without it.

use parm_protocol::StableCode;

use crate::Failure;
use crate::cli::train::TrainCommand;
use crate::codes::coded;

/// `parm train`.
pub fn main(_: &TrainCommand) -> Result<(), Failure> {
    Err(absent())
}

/// Returns an error with status 64 that states how to build the trainer.
pub fn absent() -> Failure {
    Failure::Configuration(coded(
        StableCode::TrainingNotBuilt,
        "this build cannot train or evaluate: build with `cargo build --release --features train`",
    ))
}
