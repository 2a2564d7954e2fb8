//! Errors of a run, an experiment, a tuning problem or a recording.

use std::path::{Path, PathBuf};

/// An error of the laboratory.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot {what} '{}': {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("cannot start {name}: {reason}: see its log {}", log.display())]
    Start { name: String, reason: String, log: PathBuf },
    #[error("{name} failed: it ended with {status} without a fault: see its log {}", log.display())]
    Died { name: String, status: String, log: PathBuf },
    #[error("cannot {what} {name}: {reason}")]
    Process { what: &'static str, name: String, reason: String },
    #[error("request of {path} at {address} failed: it returned {answer}")]
    Page { address: String, path: &'static str, answer: String },
    #[error("frontend is not ready: {ready} of {wanted} workers joined within {waited_ms} ms: see {}", log.display())]
    NotReady { ready: u32, wanted: u32, waited_ms: u64, log: PathBuf },
    #[error("invalid answer of worker {url}: {reason}")]
    Reference { url: String, reason: String },
    #[error("the tally in the file has another form: run it again")]
    KeptTally,
    #[error("interrupted")]
    Interrupted,
    #[error("unknown policy '{name}': define [policy.{name}], or use one of {known}")]
    UnknownPolicy { name: String, known: String },
    #[error(
        "cannot simulate policy '{policy}': rivals, several frontends and [simulated] come without {without}: leave one out"
    )]
    Unsimulated { policy: String, without: &'static str },
    #[error(
        "policy '{policy}' needs --simulate: rivals, several frontends and [simulated] have no processes"
    )]
    OnlySimulated { policy: String },
    #[error("invalid load {load}: give a share of the deployed instances' capacity above 0")]
    BadLoad { load: f64 },
    #[error("invalid {name} = {share}: give a share from 0 to {most}")]
    BadShare { name: &'static str, share: f64, most: f64 },
    #[error("invalid {name} = {value}: give at most {most}")]
    TooMany { name: &'static str, value: u32, most: u32 },
    #[error("invalid warm-up of {warm_up} of {queries} queries: leave some to count")]
    AllWarmUp { warm_up: u64, queries: u64 },
    #[error("nothing to simulate: name at least one {what}")]
    Nothing { what: &'static str },
    #[error("invalid experiment file: {0}")]
    ConfigFile(String),
    #[error("invalid experiment file: it has both `loads` and `rates`: keep one of them")]
    LoadsAndRates,
    #[error("invalid scenario '{scenario}': {error}")]
    Scenario { scenario: String, error: parm_workload::Error },
    #[error("invalid SLO of 0 ms: give the time within which an answer is useful")]
    NoSlo,
    #[error("invalid number of instances 0: give at least one")]
    NoInstances,
    #[error(
        "load exceeds the capacity: {rate:.1} queries per second arrive and {instances} instances serve {can:.1}: add instances or allow larger batches"
    )]
    Overload { rate: f64, can: f64, instances: u32 },
    #[error("invalid accuracy {value}: give a fraction from 0 to 1, such as 0.93")]
    NoAccuracy { value: f64 },
    #[error(
        "the bundle has no measured accuracy: run `parm evaluate` on it, or give accuracies on the command line"
    )]
    NotMeasured,
    #[error(
        "too few queries: {queries} do not distinguish candidates: give at least {least} with --queries; a trace or recording needs that many arrivals of its own"
    )]
    FewQueries { queries: u64, least: u64 },
    #[error(
        "not enough data: p99.9 needs 10000 measured service times and there are {values}: measure longer, or use goodput without a limit on p99.9"
    )]
    SmallSample { values: usize },
    #[error("invalid line {line} of the recording: {reason}")]
    BadLine { line: usize, reason: String },
    #[error("unsupported recording of format {format}: this version reads format {known}: record again")]
    OtherFormat { format: u32, known: u32 },
    #[error("the recording has more than {limit} lines: shorten it")]
    LongRecording { limit: usize },
    #[error("the recording has more than {limit} queries: shorten it")]
    ManyQueries { limit: usize },
    #[error("half of the recorded jobs took no time at all: record while the model runs")]
    NoTime,
    #[error("the recording has no query of {what}: record while the frontend serves")]
    EmptyRecording { what: String },
    #[error("the recording has queries of {models}: name one of these models")]
    WhichModel { models: String },
    #[error("the recording has no model '{model}': it has {models}")]
    NoSuchModel { model: String, models: String },
    #[error(
        "too few recorded jobs of the deployed model: a profile needs {least} and there are {jobs}: record longer"
    )]
    FewJobs { jobs: usize, least: usize },
    #[error(transparent)]
    Grid(#[from] parm_grids::Error),
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Workload(#[from] parm_workload::Error),
}

impl Error {
    /// Builds the error of a file operation.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Error::File { what, path: path.into(), reason: error.to_string() }
    }
}
