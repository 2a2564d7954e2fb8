//! `parm stand-in`: makes a cheaper model with nearly the same answers from an ONNX file.

mod data;
#[cfg(feature = "train")]
mod school;
#[cfg(not(feature = "train"))]
#[path = "no_school.rs"]
mod school;
pub mod traffic;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use clap::Args;
use parm_backend::EngineConfig;
use parm_backend::engine::{Signature, Texts};
use parm_parity_models::bundle::{Beside, Manifest, Meaning};
use parm_parity_models::onnx::proto::DataLocation;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::check_name;
use parm_stand_ins::{
    Apart, Error, Frontier, Given, Grades, Place, Progress, School, Source, Wish, Workshop, check_size,
    grade, make, publish,
};
use serde::Serialize;

use crate::Failure;
use crate::cli::Output;
use crate::models::Named;
use crate::progress::Bar;

pub const EXAMPLES: &str = "Examples:
  parm stand-in fashion-lenet --data idx:images-idx3-ubyte.gz,labels-idx1-ubyte.gz
      a model of the repository, with labels to measure the accuracy
  parm stand-in my-model.onnx --name mine --data npy:rows.npy --engine ort
      an ONNX file; the model, its stand-in and the bundle go into the repository
  parm stand-in magika --data bytes:/usr/share,/usr/lib --engine ort
      a file-type model, with the files of this machine
  parm stand-in my-model.onnx --name mine --data capture:captured
      from traffic that `parm serve --capture captured` captured
  parm stand-in my-model.onnx --name mine --data npy:held.npy,labels.npy --test npy:test.npy,test-labels.npy --from small.onnx
      measures your own network as well, and all candidates on separate rows

See docs/stand-ins.md.";

/// `parm stand-in`.
#[derive(Debug, Args)]
pub struct StandInSearch {
    /// Deployed model: its name in the repository, or an ONNX file
    pub model: String,
    /// Rows: npy:FILE,FILE.. or idx:FILE,FILE.. with an array for each input, then labels if any; bytes:FOLDER,FOLDER.. for
    /// file-type models; texts:FILE with a text in each line for text models; capture:FOLDER for captures of `parm serve`.
    /// At least 24 rows, better a few hundred
    #[arg(long, value_name = "SOURCE")]
    pub data: String,
    /// Separate rows to measure the best candidates on, as in --data
    #[arg(long, value_name = "SOURCE")]
    pub test: Option<String>,
    /// Your own stand-in, to measure as it is and in 8 bits (repeat)
    #[arg(long, value_name = "FILE")]
    pub from: Vec<PathBuf>,
    /// Train the two best candidates within the cost on the model's answers, for this many epochs (10 without a number).
    /// Needs a build with `--features train` and thousands of rows, and takes minutes to hours
    #[arg(long, value_name = "EPOCHS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    pub teach: Option<std::num::NonZeroU64>,
    /// Rows to train on, as in --data, without labels [default: unused rows of --data]
    #[arg(long, value_name = "SOURCE", requires = "teach")]
    pub lessons: Option<String>,
    /// Largest cost of the stand-in, as a share of the deployed model's time
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    pub cost: f64,
    /// Engine: ort (ONNX Runtime), tract (built in), or auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub engine: String,
    /// Name in the repository for the model of a file [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Meaning of all outputs, or of one (repeat): logits, probabilities, values (difference of at most 5 % of their
    /// size), embedding (cosine of 0.95), decision:THRESHOLD for one number, label [default: found from answers and labels, and printed; otherwise values]
    #[arg(long, value_name = "[OUTPUT=]MEANING", value_parser = meaning)]
    pub meaning: Vec<Given>,
    /// Output that the labels belong to [default: the scores of classes]
    #[arg(long, value_name = "OUTPUT")]
    pub label_output: Option<String>,
    /// Rows to make candidates from
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub calibration: usize,
    /// Largest number of rows to measure candidates on; 2,000 distinguish 98 % from 99 %
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub judged: usize,
    /// Seed of the choice of rows
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Approximate time to measure costs
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub measure: u64,
    /// Time after which no further candidate is made; an interrupt has the same effect
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,
    /// Print the candidates, and write no model and no bundle
    #[arg(long)]
    pub dry_run: bool,
    /// Folder for candidates and checkpoints, removed at the end
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    pub runs: PathBuf,
    /// Model repository
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Reads `MEANING` or `OUTPUT=MEANING`. Names of outputs may hold the sign too.
fn meaning(text: &str) -> Result<Given, String> {
    let (output, meaning) = match text.rsplit_once('=') {
        Some((output, meaning)) => (Some(output.to_owned()), meaning),
        None => (None, text),
    };
    Ok(Given { output, meaning: meaning.parse()?, source: Source::Flag })
}

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
    let watch = Watch::new().map_err(Failure::Run)?;
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
    let is_for_all = flags.meaning.iter().any(|given| given.output.is_none());
    let known = original.meanings.iter().filter(|_| !is_for_all).cloned();
    let known =
        known.map(|(output, meaning)| Given { output: Some(output), meaning, source: Source::Bundle });
    let vectors = original.texts.iter().flat_map(|texts| texts.pooled_outputs(graph));
    let pooled = vectors.filter(|_| !is_for_all).map(|output| {
        let (output, meaning) = (Some(output), Meaning::Embedding);
        Given { output, meaning, source: Source::Texts }
    });
    flags.meaning.iter().cloned().chain(known).chain(pooled).collect()
}

/// Shows the progress of the search, and stops it at an interrupt.
struct Watch {
    bar: Bar,
    stopped: Arc<AtomicBool>,
}

impl Watch {
    /// Handles interrupts from now on: the first ends the search after its step, the second ends the process at once.
    fn new() -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let asked = stopped.clone();
        crate::shutdown::on_signal(move || asked.store(true, Ordering::Relaxed))?;
        Ok(Self { bar: Bar::steps(), stopped })
    }
}

impl Progress for Watch {
    fn doing(&self, what: &str) {
        self.bar.step(what, true);
    }

    fn within(&self, what: &str) {
        self.bar.step(what, false);
    }

    fn tell(&self, what: &str) {
        self.bar.tell(what);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
