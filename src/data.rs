//! `parm data`: describes a source of rows, or saves it as arrays.

use std::fmt;
use std::path::Path;

use parm_training::data::{Limit, Samples, Source, Unusable};
use serde::Serialize;

use crate::Failure;
use crate::cli::data::DataCommand;
use crate::printer::{say, show};

/// Runs the command. An invalid source ends with status 64.
pub fn main(command: &DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Save { source, folder } => save(&parsed(source)?, folder).map_err(Failure::Run),
        DataCommand::Show { source, output } => {
            let rows = parsed(source)?.read(Limit::default()).map_err(anyhow::Error::from)?;
            show(&Shown::of(&rows), *output).map_err(Failure::Run)
        }
    }
}

fn parsed(source: &str) -> Result<Source, Failure> {
    source.parse().map_err(|error: Unusable| Failure::Configuration(error.into()))
}

fn save(source: &Source, folder: &Path) -> anyhow::Result<()> {
    let written = source.read(Limit::default())?.save(folder)?;
    say(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}

/// The description of a source.
#[derive(Debug, Serialize)]
struct Shown {
    rows: usize,
    row: Vec<usize>,
    least: f32,
    greatest: f32,
    /// Rows of each class from 0 on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<usize>,
    /// Numbers to predict for each row.
    values: usize,
}

impl Shown {
    fn of(samples: &Samples) -> Self {
        let data = samples.inputs.data();
        Self {
            rows: samples.len(),
            row: samples.inputs.shape()[1..].to_vec(),
            least: data.iter().copied().fold(f32::INFINITY, f32::min),
            greatest: data.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            classes: samples.classes(),
            values: samples.values.as_ref().map_or(0, |values| values.shape()[1..].iter().product()),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, row, least, greatest, classes, values } = self;
        write!(to, "{rows} rows of {row:?}, values {least} to {greatest}")?;
        if !classes.is_empty() {
            write!(to, "\n{} classes, rows of each: {classes:?}", classes.len())?;
        }
        if *values > 0 {
            write!(to, "\n{values} numbers to predict for each row")?;
        }
        Ok(())
    }
}
