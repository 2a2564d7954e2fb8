//! The commands that need the trainer, in a build that has none.

use parm_protocol::StableCode;

use crate::Failure;
use crate::cli::train::TrainCommand;
use crate::codes::coded;

/// `parm train`.
pub fn main(_: &TrainCommand) -> Result<(), Failure> {
    Err(absent())
}

/// Says how to get a trainer; status 64.
pub fn absent() -> Failure {
    Failure::Configuration(coded(
        StableCode::TrainingNotBuilt,
        "this build cannot train or evaluate, to keep servers small: build with `cargo build --release --features train`",
    ))
}
