//! Errors of an experiment.

use std::path::{Path, PathBuf};

/// An error of an experiment.
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
    #[error(
        "policy '{policy}' needs {wanted} workers and there are {given}: add some under processes.workers, or lower its instances"
    )]
    TooFewWorkers { policy: String, wanted: u32, given: u32 },
    #[error(
        "invalid parity_only = {parity_only} of policy '{policy}': with real processes `parm` divides the workers: remove it"
    )]
    ParityOnly { policy: String, parity_only: u32 },
    #[error("invalid answer of worker {url}: {reason}")]
    Reference { url: String, reason: String },
    #[error("the tally in the file has another form: run it again")]
    KeptTally,
    #[error("interrupted")]
    Interrupted,
    #[error("unknown policy '{name}': define [policy.{name}], or use one of {known}")]
    UnknownPolicy { name: String, known: String },
    #[error("invalid load {load}: give a share of the deployed instances' capacity above 0")]
    BadLoad { load: f64 },
    #[error("invalid {name} = {share}: give a share from 0 to {most}")]
    BadShare { name: &'static str, share: f64, most: f64 },
    #[error("invalid {name} = {value}: give at most {most}")]
    TooMany { name: &'static str, value: u32, most: u32 },
    #[error(
        "invalid policy '{policy}': {parity} of its {instances} instances serve parities: leave some for the deployed model"
    )]
    NoDeployedInstance { policy: String, instances: u32, parity: u32 },
    #[error("nothing to simulate: name at least one {what}")]
    Nothing { what: &'static str },
    #[error("invalid experiment file: {0}")]
    ConfigFile(String),
    #[error("invalid experiment file: it has both `loads` and `rates`: keep one of them")]
    LoadsAndRates,
    #[error("invalid scenario '{scenario}': {error}")]
    Scenario { scenario: String, error: parm_workload::Error },
    #[error(transparent)]
    Grid(#[from] parm_grids::Error),
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Simulator(#[from] parm_simulator::Error),
    #[error(transparent)]
    Workload(#[from] parm_workload::Error),
}

impl Error {
    /// Builds the error of a file operation.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Error::File { what, path: path.into(), reason: error.to_string() }
    }
}
