//! What can go wrong with an experiment.

use std::path::{Path, PathBuf};

/// An error of an experiment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot {what} '{}': {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("cannot start {name}: {reason}; its log is {}", log.display())]
    Start { name: String, reason: String, log: PathBuf },
    #[error("{name} ended with {status} though no fault asked for it; its log is {}", log.display())]
    Died { name: String, status: String, log: PathBuf },
    #[error("cannot {what} {name}: {reason}")]
    Process { what: &'static str, name: String, reason: String },
    #[error("{address} answered {path} with {answer}")]
    Page { address: String, path: &'static str, answer: String },
    #[error("only {ready} of {wanted} workers joined the frontend within {waited_ms} ms: see {}", log.display())]
    NotReady { ready: u32, wanted: u32, waited_ms: u64, log: PathBuf },
    #[error(
        "policy '{policy}' wants {wanted} workers and there are {given}: name more under processes.workers, or lower its instances"
    )]
    TooFewWorkers { policy: String, wanted: u32, given: u32 },
    #[error(
        "policy '{policy}' keeps {parity_only} instances for parities by itself: with real processes every worker serves everything, and `parm` divides them"
    )]
    ParityOnly { policy: String, parity_only: u32 },
    #[error("worker {url} does not answer as it should: {reason}")]
    Reference { url: String, reason: String },
    #[error("interrupted")]
    Interrupted,
    #[error("there is no policy '{name}': define [policy.{name}], or use one of {known}")]
    UnknownPolicy { name: String, known: String },
    #[error("there is no scenario '{name}': define [scenario.{name}], or use one of {known}")]
    UnknownScenario { name: String, known: String },
    #[error("a load of {load}: give a share of the deployed instances' capacity above 0")]
    BadLoad { load: f64 },
    #[error("a {what} model of {share} of the deployed model's time: give a share from 0 to 100")]
    BadShare { what: &'static str, share: f64 },
    #[error(
        "policy '{policy}' has {instances} instances of which {parity} are for parities: leave some for the deployed model"
    )]
    NoDeployedInstance { policy: String, instances: u32, parity: u32 },
    #[error("there is nothing to simulate: name at least one {what}")]
    Nothing { what: &'static str },
    #[error("the experiment file cannot be used: {0}")]
    ConfigFile(String),
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Simulator(#[from] parm_simulator::Error),
    #[error(transparent)]
    Workload(#[from] parm_workload::Error),
}

impl Error {
    /// What could not be done with a file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Error::File { what, path: path.into(), reason: error.to_string() }
    }
}
