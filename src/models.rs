//! `parm models`: what a repository holds, for people and for programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::{Format, Repository};
use serde::Serialize;

use crate::cli::{ModelsCommand, Output, View};

/// Runs the command.
pub fn main(command: &ModelsCommand) -> anyhow::Result<()> {
    match command {
        ModelsCommand::List { view } => list(view),
        ModelsCommand::Inspect { model, model_version, view } => inspect(model, *model_version, view),
    }
}

/// A line of `parm models list`.
#[derive(Debug, Serialize)]
struct Listed {
    model: String,
    version: u64,
    format: &'static str,
    bytes: u64,
    sha256: String,
    path: PathBuf,
}

fn list(view: &View) -> anyhow::Result<()> {
    let scan = Repository::open(&view.models)?.scan()?;
    let mut listed = Vec::new();
    for model in scan.models.values() {
        for (&number, version) in &model.versions {
            listed.push(Listed {
                model: model.name.clone(),
                version: number,
                format: match version.format {
                    Format::Onnx => "onnx",
                    Format::Emulated => "emulated",
                },
                bytes: std::fs::metadata(&version.path)?.len(),
                sha256: version.digest()?,
                path: version.path.clone(),
            });
        }
    }
    match view.output {
        Output::Json => print(&serde_json::to_string_pretty(&listed)?)?,
        Output::Text => print(&table(&listed))?,
    }
    for (model, problem) in &scan.problems {
        eprintln!("parm: {model}: {problem}");
    }
    if scan.problems.is_empty() {
        Ok(())
    } else {
        bail!("{} problems in the repository", scan.problems.len())
    }
}

fn table(listed: &[Listed]) -> String {
    let width = listed.iter().map(|line| line.model.len()).max().unwrap_or(0).max("MODEL".len());
    let mut text = format!("{:width$}  {:>7}  {:>8}  {:>10}  SHA-256", "MODEL", "VERSION", "FORMAT", "BYTES");
    for Listed { model, version, format, bytes, sha256, .. } in listed {
        text.push_str(&format!(
            "\n{model:width$}  {version:>7}  {format:>8}  {bytes:>10}  {}",
            &sha256[..16]
        ));
    }
    text
}

fn inspect(model: &str, version: Option<u64>, view: &View) -> anyhow::Result<()> {
    let path = locate(model, version, &view.models)?;
    let model =
        Model::open(&path, &Limits::default()).with_context(|| format!("cannot read {}", path.display()))?;
    let report = model.inspect();
    match view.output {
        Output::Json => print(&serde_json::to_string_pretty(&report)?)?,
        Output::Text => print(&format!("{}\n{report}", path.display()))?,
    }
    if report.is_sound() { Ok(()) } else { bail!("no engine will load {}: see the findings", path.display()) }
}

/// The file of a model: a path as it is, or a name in the repository.
fn locate(model: &str, version: Option<u64>, repository: &Path) -> anyhow::Result<PathBuf> {
    if Path::new(model).is_file() {
        return Ok(PathBuf::from(model));
    }
    let repository = Repository::open(repository)?;
    let found = repository.model(model).with_context(|| {
        let names: Vec<String> =
            repository.scan().map(|scan| scan.models.into_keys().collect()).unwrap_or_default();
        format!("no model '{model}' in {}: it holds {}", repository.root().display(), names.join(", "))
    })?;
    let chosen = match version {
        Some(number) => found.versions.get(&number),
        None => found.latest().map(|(_, version)| version),
    };
    let versions: Vec<u64> = found.versions.keys().copied().collect();
    let chosen =
        chosen.with_context(|| format!("model '{model}' has no such version: it has {versions:?}"))?;
    if chosen.format == Format::Emulated {
        bail!("'{model}' is an emulated model, there is no graph to inspect: read {}", chosen.path.display());
    }
    Ok(chosen.path.clone())
}

/// Data goes to stdout; a reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
