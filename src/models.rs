//! `parm models`: lists, verifies and inspects the models of a repository, as text or JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parm_backend::engine::{Engine, TRY_ORT};
use parm_parity_models::bundle;
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::{Repository, Scan};
use parm_protocol::StableCode;
use serde::Serialize;

use crate::cli::{ModelsCommand, Output, View};
use crate::codes::coded;
use crate::logging::without_panic_texts;
use crate::printer::{print, say, table};

/// Runs the command.
pub fn main(command: &ModelsCommand) -> anyhow::Result<()> {
    match command {
        ModelsCommand::List { view } => list(view),
        ModelsCommand::Verify { model, view } => verify(model.as_deref(), view),
        ModelsCommand::Inspect { model, view } => inspect(model, view),
    }
}

/// A line of `parm models list`.
#[derive(Debug, Serialize)]
struct Listed {
    model: String,
    version: u64,
    bytes: u64,
    sha256: String,
    path: PathBuf,
}

fn list(view: &View) -> anyhow::Result<()> {
    let repository = Repository::open(&view.models)?;
    let scan = repository.scan()?;
    let mut listed = Vec::new();
    for model in scan.models.values() {
        for (&number, version) in &model.versions {
            listed.push(Listed {
                model: model.name.clone(),
                version: number,
                bytes: std::fs::metadata(&version.path)?.len(),
                sha256: version.digest()?,
                path: version.path.clone(),
            });
        }
    }
    print(view.output, &listed, || lines(&listed))?;
    if let Some(cure) = repository.vacancy(&scan) {
        bail!("{cure}");
    }
    for (model, problem) in &scan.problems {
        eprintln!("parm: {model}: {problem}");
    }
    note_loose_files(&repository, &scan);
    if scan.problems.is_empty() {
        Ok(())
    } else {
        let count = scan.problems.len();
        bail!("{count} problem{} in the repository", if count == 1 { "" } else { "s" })
    }
}

/// Prints a note about files that are not served.
fn note_loose_files(repository: &Repository, scan: &Scan) {
    if let Some(cure) = repository.loose_files(scan) {
        eprintln!("parm: note: {cure}");
    }
}

fn lines(listed: &[Listed]) -> String {
    let head = ["MODEL", "VERSION", "BYTES", "SHA-256"].map(str::to_owned);
    let rows = listed.iter().map(|Listed { model, version, bytes, sha256, .. }| {
        [model.clone(), version.to_string(), bytes.to_string(), sha256[..16].to_owned()]
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()).join("\n")
}

/// Compares bundles with their files. Prints all reports, then fails if there is a problem.
fn verify(model: Option<&str>, view: &View) -> anyhow::Result<()> {
    let repository = Repository::open(&view.models)?;
    let names: Vec<String> = match model {
        Some(model) => vec![model.to_owned()],
        None => {
            let models = repository.scan()?.models;
            let (folder, count) = (view.models.display(), models.len());
            if count == 0 {
                bail!("no models in {folder}: `parm models list --models {folder}` says why");
            }
            let bundled = models.into_values().filter(|model| model.bundle.is_some());
            let names: Vec<String> = bundled.map(|model| model.name).collect();
            if names.is_empty() && matches!(view.output, Output::Text) {
                return say(&format!(
                    "nothing to verify: the models in {folder} ({count}) need no bundle to be served"
                ));
            }
            names
        }
    };
    let reports = names.iter().map(|name| bundle::verify(&repository, name));
    let reports: Vec<bundle::Report> = reports.collect::<Result<_, _>>()?;
    print(view.output, &reports, || bundles(&reports))?;
    let broken: Vec<&str> =
        reports.iter().filter(|report| !report.is_sound()).map(|report| report.model.as_str()).collect();
    if broken.is_empty() { Ok(()) } else { bail!("bundles that do not fit: {}", broken.join(", ")) }
}

/// A row of the table of bundles, and the problems that are listed below it.
fn row<'a>(model: &str, kind: &str, models: String, problems: &'a [String]) -> ([String; 4], &'a [String]) {
    let state = if problems.is_empty() { "ok" } else { "does not fit" };
    ([model.to_owned(), kind.to_owned(), state.to_owned(), models], problems)
}

/// A line for each code and stand-in, and one for each problem below it.
fn bundles(reports: &[bundle::Report]) -> String {
    let mut rows = vec![(["MODEL", "CODE", "STATE", "MODELS"].map(str::to_owned), &[][..])];
    for report in reports {
        rows.push(row(&report.model, "(deployed)", String::new(), &report.problems));
        rows.extend(
            report
                .parities
                .iter()
                .map(|parity| row(&report.model, &parity.code, parity.models.join(", "), &parity.problems)),
        );
        rows.extend(report.stand_ins.iter().map(|stand_in| {
            let known = [("cost", stand_in.cost), ("agreement", stand_in.agreement)];
            let known = known.iter().filter_map(|(what, value)| Some(format!(", {what} {:.2}", (*value)?)));
            let models = format!("{}{}", stand_in.model, known.collect::<String>());
            row(&report.model, "(stand-in)", models, &stand_in.problems)
        }));
    }
    let (cells, problems): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let below =
        |problems: &[String]| problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>();
    let lines = table(&cells).into_iter().zip(problems).map(|(line, problems)| line + &below(problems));
    lines.collect::<Vec<_>>().join("\n")
}

fn inspect(model: &str, view: &View) -> anyhow::Result<()> {
    let named = Named::find(model, None, &view.models)?;
    let path = &named.path;
    let model =
        Model::open(path, &Limits::default()).with_context(|| format!("cannot read {}", path.display()))?;
    let report = model.inspect();
    let tried = tried(path);
    let text = || format!("{}\n{report}{}{}", path.display(), bundled(&named), engines(&tried));
    print(view.output, &report, text)?;
    if !report.is_sound() {
        bail!("no engine can load {}: see the findings above", path.display());
    }
    let [(_, Err(_)), (name, Err(error))] = &tried else { return Ok(()) };
    let (name, error) = match error {
        parm_backend::Error::RuntimeLibrary { .. } => ("tract", said(&tried, 0)),
        error => (*name, error.to_string()),
    };
    let problem = format!("no installed engine runs {}: {name}: {error}", path.display());
    Err(coded(StableCode::ModelNotLoaded, problem))
}

/// The outcome of one of these engines. It does not advise an engine that failed as well.
fn said(tried: &[Tried; 2], engine: usize) -> String {
    let failed = |outcome: &Result<(), parm_backend::Error>| matches!(outcome, Err(error) if !matches!(error, parm_backend::Error::RuntimeLibrary { .. }));
    match &tried[engine].1 {
        Ok(()) => "loads it".to_owned(),
        Err(error) if failed(&tried[1].1) => error.to_string().trim_end_matches(TRY_ORT).to_owned(),
        Err(error) => error.to_string(),
    }
}

/// An engine, and whether it loads and runs a file.
type Tried = (&'static str, Result<(), parm_backend::Error>);

/// Tries a file on each engine, as a worker does.
fn tried(path: &Path) -> [Tried; 2] {
    let config = parm_backend::Config::default();
    ["tract", "ort"].map(|name| {
        let engine = parm_backend::engine::by_name(name, &config.engine);
        let attempt = |engine: Box<dyn Engine>| parm_backend::try_file(&*engine, path, &config);
        (name, engine.and_then(|engine| without_panic_texts(|| attempt(engine))))
    })
}

/// Returns a line for each engine: whether it loads the file.
fn engines(tried: &[Tried; 2]) -> String {
    let line = |engine: usize| format!("\nengine {}: {}", tried[engine].0, said(tried, engine));
    (0..tried.len()).map(line).collect()
}

/// Returns a line for each code and stand-in of a model's bundle; nothing without a readable bundle.
fn bundled(model: &Named) -> String {
    let manifest = model.bundle.as_ref().and_then(|path| bundle::Manifest::read(path).ok());
    let Some(manifest) = manifest else { return String::new() };
    let mut text = String::new();
    for parity in &manifest.parities {
        let models: Vec<&str> = parity.files().map(|file| file.name.as_str()).collect();
        let code = &parity.code;
        text.push_str(&format!("\ncode {} k={} r={}: {}", code.kind, code.k, code.r, models.join(", ")));
    }
    for stand_in in &manifest.stand_ins {
        text.push_str(&format!("\nstand-in {}", stand_in.model.name));
        for cost in &stand_in.costs {
            text.push_str(&format!(", cost {:?} on {}", cost.rows, cost.engine));
        }
        stand_in.agreement.iter().for_each(|agreement| text.push_str(&format!(", agreement {agreement}")));
    }
    text
}

/// A model as commands name it: an ONNX file, or a name in the repository.
pub struct Named {
    pub name: String,
    pub path: PathBuf,
    /// The file of its bundle in the repository.
    pub bundle: Option<PathBuf>,
}

impl Named {
    /// Finds the file. `name` is what a file is to be called.
    pub fn find(given: &str, name: Option<&str>, repository: &Path) -> anyhow::Result<Self> {
        let file = Path::new(given);
        if file.is_file() {
            let stem = file.file_stem().and_then(|stem| stem.to_str()).context("the file has no name")?;
            return Ok(Self { name: name.unwrap_or(stem).to_owned(), path: file.to_owned(), bundle: None });
        }
        if given.contains('/') || given.ends_with(".onnx") {
            bail!("'{given}' is not a file: give an ONNX file, or the name of a model in --models FOLDER");
        }
        let repository = Repository::open(repository)?;
        let found = repository.model(given).with_context(|| {
            let names: Vec<String> =
                repository.scan().map(|scan| scan.models.into_keys().collect()).unwrap_or_default();
            format!("no model '{given}' in {}: it holds {}", repository.root().display(), names.join(", "))
        })?;
        if let Ok(scan) = repository.scan() {
            note_loose_files(&repository, &scan);
        }
        let (_, chosen) = found.latest().with_context(|| format!("model '{given}' has no version"))?;
        Ok(Self { name: given.to_owned(), path: chosen.path.clone(), bundle: found.bundle })
    }
}
