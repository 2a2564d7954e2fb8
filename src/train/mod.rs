//! `parm train`: trains base models, parity models, stand-ins, learned codes, and matrices of them.

mod base;
pub mod captured;
mod clock;
mod code;
pub mod engine;
mod matrix;
mod parity;
mod progress;
mod run;
mod stand_in;
mod taught;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use parm_parity_models::onnx::{Limits, Model};
use parm_training::data::{Limit, Samples, Source};

use crate::Failure;
use crate::cli::train::TrainCommand;
use crate::models::Named;

/// Runs the command. Flags and files that cannot be used end with status 64.
pub fn main(command: &TrainCommand) -> Result<(), Failure> {
    match command {
        TrainCommand::Base(flags) => base::main(flags),
        TrainCommand::Parity(flags) => parity::main(flags),
        TrainCommand::StandIn(flags) => stand_in::main(flags),
        TrainCommand::Code(flags) => code::main(flags),
        TrainCommand::Matrix(flags) => matrix::main(flags),
    }
}

/// Reads rows from a source, for a model with this many inputs.
fn samples(source: &str, inputs: usize) -> anyhow::Result<Samples> {
    ensure!(
        !source.starts_with("capture:"),
        "captured rows have no labels: train a parity model or a stand-in with them"
    );
    let source: Source = source.parse()?;
    Ok(source.read_for(inputs, Limit::default())?)
}

/// A deployed model: its name in the repository, its file and its graph.
pub struct Deployed {
    name: String,
    path: PathBuf,
    model: Model,
}

impl Deployed {
    /// Finds the model by its name in the repository, or by its file.
    fn find(given: &str, name: Option<&str>, models: &Path) -> anyhow::Result<Self> {
        let Named { name, path, .. } = Named::find(given, name, models)?;
        let model = Model::open(&path, &Limits::default()).with_context(|| path.display().to_string())?;
        Ok(Self { name, path, model })
    }
}

/// Returns the name and version of this program, for the bundle.
fn tool() -> String {
    format!("parm {}", env!("CARGO_PKG_VERSION"))
}
