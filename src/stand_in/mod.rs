//! `parm stand-in`: makes a cheaper model with nearly the same answers from an ONNX file.

mod data;
#[cfg(feature = "train")]
mod school;
#[cfg(not(feature = "train"))]
#[path = "no_school.rs"]
mod school;
pub mod traffic;
mod watch;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use parm_backend::EngineConfig;
use parm_backend::engine::{Signature, Texts};
use parm_parity_models::bundle::{Beside, Manifest, Meaning};
use parm_parity_models::onnx::proto::DataLocation;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::check_name;
use parm_stand_ins::{
    Apart, Error, Frontier, Given, Grades, Place, School, Source, Wish, Workshop, check_size, grade, make,
    publish,
};
use serde::Serialize;

use crate::Failure;
use crate::cli::Output;
use crate::cli::stand_in::{Answers, StandInSearch};
use crate::models::Named;

/// Most rows to refit weights on after pruning.
const FITTED: usize = 2000;

/// Runs the command. Flags and files that cannot be used end with status 64.
pub fn main(flags: &StandInSearch) -> Result<(), Failure> {
    let original = Original::find(flags).map_err(Failure::Configuration)?;
    let folder = flags.runs.join(format!("{}-stand-in.{}", original.name, std::process::id()));
    let workshop = Workshop::new(&flags.engine, EngineConfig::default(), &folder);
    let workshop = workshop.map_err(|error| Failure::Configuration(error.into()))?;
    let done = search(flags, &original, &workshop);
    workshop.clear();
    // Removes the folder only if it is empty: other runs may use it.
    let _ = std::fs::remove_dir(&flags.runs);
    done
}

fn search(flags: &StandInSearch, original: &Original, workshop: &Workshop) -> Result<(), Failure> {
    let deployed = workshop.open_deployed(&original.path).map_err(|error| Failure::Run(error.into()))?;
    let graph = deployed.signature().clone();
    drop(deployed);
    let model = data::Model { name: &original.name, signature: &graph, texts: original.texts.as_ref() };
    let data::Asked { rows, labels, in_time } = data::read(&flags.data, model, flags.seed)
        .with_context(|| format!("--data {}", flags.data))
        .map_err(Failure::Configuration)?;
    let more = |flag: &str, source: &Option<String>| -> anyhow::Result<Option<data::Asked>> {
        let Some(source) = source else { return Ok(None) };
        let asked = data::read(source, model, flags.seed).with_context(|| format!("{flag} {source}"))?;
        ensure!(!asked.rows.is_empty(), "{flag} has no rows: give rows that are not in --data");
        Ok(Some(asked))
    };
    let test = more("--test", &flags.test).map_err(Failure::Configuration)?;
    let test = test.map(|test| test.unseen(&rows)).transpose().map_err(Failure::Configuration)?;
    let lessons = more("--lessons", &flags.lessons).map_err(Failure::Configuration)?;
    let wish = Wish {
        cost: flags.cost,
        meanings: meanings(flags, original, &graph),
        label_output: flags.label_output.clone(),
        labels,
        calibration: flags.calibration,
        judged: flags.judged,
        fitted: FITTED,
        seed: flags.seed,
        in_time,
        measure: Duration::from_secs(flags.measure),
        time: flags.time_limit.map(Duration::from_secs),
        brought: brought(&flags.from).map_err(Failure::Configuration)?,
    };
    let school = school::find(flags, &original.name, lessons.map(|lessons| lessons.rows))?;
    let watch = watch::Watch::new().map_err(Failure::Run)?;
    let pooled = original.pooled(workshop).map_err(Failure::Run)?;
    let (path, model) =
        pooled.as_ref().map_or((&original.path, &original.model), |(path, model)| (path, model));
    let from = (path.as_path(), model);
    let taught_by = school.as_ref().map(|class| class as &dyn School);
    let found = make(workshop, from, &rows, &wish, &watch, taught_by);
    let graded = found.map(|found| {
        let apart = |test: &data::Asked| {
            grade(workshop, path, &found, Apart { rows: &test.rows, labels: test.labels.as_deref() }, &watch)
        };
        // The candidates are useful even if they cannot be measured on the test rows.
        let grades = match test.as_ref().map(apart) {
            Some(Ok(grades)) => Some(grades),
            Some(Err(error)) => {
                eprintln!("--test: cannot measure the candidates on these rows: {error}");
                None
            }
            None => None,
        };
        (found, grades)
    });
    drop(watch);
    let (found, grades) = graded.map_err(failure)?;
    if let Some(school) = school {
        school.forget();
    }
    let served = original.texts.as_ref().map(|texts| texts.served(&graph)).transpose();
    let signature = served.map_err(|error| Failure::Run(error.into()))?.unwrap_or(graph);
    let place = Place {
        root: &flags.models,
        name: &original.name,
        deployed: &original.bytes,
        signature: &signature,
        rows: &rows,
        beside: &original.beside,
        command: &crate::environment::command_line(),
    };
    report(flags, (&found, grades.as_ref()), &place).map_err(Failure::Run)
}

/// Rows, labels and flags that do not suit the model end with the status of a configuration.
fn failure(error: Error) -> Failure {
    match error {
        Error::Unusable(_) => Failure::Configuration(error.into()),
        error => Failure::Run(error.into()),
    }
}

/// Prints the table or the JSON, and writes the bundle.
fn report(
    flags: &StandInSearch,
    (found, grades): (&Frontier, Option<&Grades>),
    place: &Place<'_>,
) -> anyhow::Result<()> {
    let written = match found.chosen().filter(|_| !flags.dry_run) {
        Some(chosen) => Some(publish(place, found, chosen)?),
        None => None,
    };
    let text = match flags.output {
        Output::Json => serde_json::to_string_pretty(&Findings { found, advice: found.verdict(), grades })?,
        Output::Text => match grades {
            Some(grades) => format!("{found}\n\n{grades}"),
            None => found.to_string(),
        },
    };
    match writeln!(crate::printer::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    eprintln!("{}", found.verdict());
    if let Some(path) = written {
        let (path, models) = (path.display(), flags.models.display());
        eprintln!("wrote {path}: serve it with `parm serve --models {models} --policy stand-in`");
    }
    Ok(())
}

/// The output for programs.
#[derive(Serialize)]
struct Findings<'a> {
    #[serde(flatten)]
    found: &'a Frontier,
    /// What was made, or what to do instead.
    advice: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    grades: Option<&'a Grades>,
}

/// Suffix of the names of 8-bit copies.
const OF_EIGHT_BITS: &str = "-int8";

/// Reads the user's own models. The prefix of their names differs from those of all families.
fn brought(files: &[PathBuf]) -> anyhow::Result<Vec<(String, Bytes)>> {
    let mut models: Vec<(String, Bytes)> = Vec::new();
    for path in files {
        let model =
            Model::open(path, &Limits::default()).with_context(|| format!("--from {}", path.display()))?;
        check_size(&model)?;
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("--from: the file has no name")?;
        let name = format!("from-{stem}");
        if models.iter().any(|(other, _)| *other == name) {
            bail!("--from: two files are called {stem}: rename one of them");
        }
        if stem.ends_with(OF_EIGHT_BITS) {
            bail!("--from: {stem} has the suffix of 8-bit copies: rename it");
        }
        models.push((name, Draft::new(&model)?.finish()?.bytes().clone()));
    }
    Ok(models)
}

/// The deployed model.
struct Original {
    name: String,
    path: PathBuf,
    model: Model,
    /// The file for the repository, with all its weights.
    bytes: Vec<u8>,
    /// The meanings of its outputs in its bundle.
    meanings: Vec<(String, Meaning)>,
    /// Its tokenizer, if it is a text model.
    texts: Option<Texts>,
    /// The files of a text model that its stand-in needs as well.
    beside: Vec<Beside>,
}

impl Original {
    fn find(flags: &StandInSearch) -> anyhow::Result<Self> {
        if !(flags.cost > 0.0 && flags.cost <= 1.0) {
            bail!("--cost is a share of the deployed model's time: give a number above 0 and up to 1");
        }
        let Named { name, path, bundle } = Named::find(&flags.model, flags.name.as_deref(), &flags.models)?;
        check_name(&name)?;
        let manifest = bundle.map(|path| Manifest::read(&path)).transpose()?;
        let outputs = manifest.map(|manifest| manifest.deployed.outputs).unwrap_or_default();
        let meanings = outputs.into_iter().map(|output| (output.name, output.meaning)).collect();
        let model = Model::open(&path, &Limits::default()).with_context(|| path.display().to_string())?;
        check_size(&model)?;
        let mut tensors = model.proto().graph.iter().flat_map(|graph| &graph.initializer);
        // Weights in separate files are not copied to the repository, so they are put into the model's file.
        let bytes = match tensors.any(|tensor| tensor.data_location() == DataLocation::External) {
            true => Draft::new(&model)?.finish()?.bytes().to_vec(),
            false => model.bytes().to_vec(),
        };
        let texts = Texts::beside(&path)?;
        let files = if texts.is_some() { &Texts::FILES[..] } else { &[] };
        let beside = files.iter().filter_map(|file| {
            let content = std::fs::read(path.with_file_name(file)).ok()?;
            Some((PathBuf::from(file), content))
        });
        let beside = beside.collect();
        Ok(Self { name, path, model, bytes, meanings, texts, beside })
    }

    /// A text model with its pooling, whose answers stand-ins should give.
    fn pooled(&self, workshop: &Workshop) -> anyhow::Result<Option<(PathBuf, Model)>> {
        let Some(texts) = &self.texts else { return Ok(None) };
        let model = texts.pooled(&self.model)?;
        Ok(Some((workshop.write("pooled", model.bytes())?, model)))
    }
}

/// Returns the meanings of the flags, and for outputs that no flag names those of the bundle and of the vectors of texts.
fn meanings(flags: &StandInSearch, original: &Original, graph: &Signature) -> Vec<Given> {
    let given = flags.meaning.iter().cloned();
    let given = given.map(|Answers { output, meaning }| Given { output, meaning, source: Source::Flag });
    let is_for_all = flags.meaning.iter().any(|given| given.output.is_none());
    let known = original.meanings.iter().filter(|_| !is_for_all).cloned();
    let known =
        known.map(|(output, meaning)| Given { output: Some(output), meaning, source: Source::Bundle });
    let vectors = original.texts.iter().flat_map(|texts| texts.pooled_outputs(graph));
    let pooled = vectors.filter(|_| !is_for_all).map(|output| {
        let (output, meaning) = (Some(output), Meaning::Embedding);
        Given { output, meaning, source: Source::Texts }
    });
    given.chain(known).chain(pooled).collect()
}
