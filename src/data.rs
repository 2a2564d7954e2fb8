//! `parm data`: lists known data sets, checks their files and describes a source.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::bail;
use parm_training::data::known::{self, Checked, FileState, Known};
use parm_training::data::{Limit, Samples, Source, Unusable};
use serde::Serialize;

use crate::Failure;
use crate::cli::Output;
use crate::cli::data::DataCommand;

/// Runs the command. An unknown name or an invalid source ends with status 64.
pub fn main(command: &DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::List { output } => list(*output).map_err(Failure::Run),
        DataCommand::Check { name, folder, output } => {
            let set = known::find(name).map_err(|error| Failure::Configuration(error.into()))?;
            check(set, folder.as_deref().unwrap_or(Path::new(set.folder)), *output).map_err(Failure::Run)
        }
        DataCommand::Save { source, folder } => save(&parsed(source)?, folder).map_err(Failure::Run),
        DataCommand::Show { source, output } => show(&parsed(source)?, *output).map_err(Failure::Run),
    }
}

fn parsed(source: &str) -> Result<Source, Failure> {
    source.parse().map_err(|error: Unusable| Failure::Configuration(error.into()))
}

fn save(source: &Source, folder: &Path) -> anyhow::Result<()> {
    let written = source.read(Limit::default())?.save(folder)?;
    print(&written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n"))
}

fn list(output: Output) -> anyhow::Result<()> {
    if output == Output::Json {
        return print(&serde_json::to_string_pretty(known::SETS)?);
    }
    let mut text = String::new();
    for set in known::SETS {
        let Known { name, what, licence, fetch, folder, .. } = set;
        writeln!(text, "{name}: {what}\n  licence  {licence}\n  fetch    {fetch}")?;
        for (part, source) in ["train", "test "].into_iter().zip(set.sources_in(Path::new(folder))) {
            writeln!(text, "  {part}    {source}")?;
        }
    }
    print(text.trim_end())
}

fn check(set: &Known, folder: &Path, output: Output) -> anyhow::Result<()> {
    let checked = set.check(folder, Limit::default())?;
    match output {
        Output::Json => print(&serde_json::to_string_pretty(&checked)?)?,
        Output::Text => {
            let line = |Checked { path, state }: &Checked| match state {
                FileState::Sound => format!("{}: as published", path.display()),
                FileState::Missing => format!("{}: missing", path.display()),
                FileState::Differs(sum) => {
                    format!("{}: differs from the published file, MD5 {sum}", path.display())
                }
            };
            print(&checked.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        }
    }
    if checked.iter().any(|file| file.state != FileState::Sound) {
        bail!(
            "data set '{}' is incomplete or changed in {}: fetch it with: {}",
            set.name,
            folder.display(),
            set.fetch
        );
    }
    Ok(())
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

fn show(source: &Source, output: Output) -> anyhow::Result<()> {
    let shown = Shown::of(&source.read(Limit::default())?);
    if output == Output::Json {
        return print(&serde_json::to_string_pretty(&shown)?);
    }
    let Shown { rows, row, least, greatest, classes, values } = shown;
    let mut text = format!("{rows} rows of {row:?}, values {least} to {greatest}");
    if !classes.is_empty() {
        write!(text, "\n{} classes, rows of each: {classes:?}", classes.len())?;
    }
    if values > 0 {
        write!(text, "\n{values} numbers to predict for each row")?;
    }
    print(&text)
}

/// Prints to stdout.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(crate::printer::stdout(), "{text}")?)
}
