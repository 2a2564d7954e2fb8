//! `parm data`: saves a source of rows as arrays.

use std::path::Path;

use parm_training::data::{Limit, Source, Unusable};

use crate::Failure;
use crate::cli::data::DataCommand;
use crate::printer::say;

/// Runs the command. An invalid source ends with status 64.
pub fn main(command: &DataCommand) -> Result<(), Failure> {
    let DataCommand::Save { source, folder } = command;
    let source: Source = source.parse().map_err(|error: Unusable| Failure::Configuration(error.into()))?;
    save(&source, folder).map_err(Failure::Run)
}

fn save(source: &Source, folder: &Path) -> anyhow::Result<()> {
    let written = source.read(Limit::default())?.save(folder)?;
    say(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}
