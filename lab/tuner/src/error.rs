//! Errors of a problem or a recording.

/// An error of the tuner.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
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
    #[error("cannot measure '{url}': {reason}")]
    Unmeasured { url: String, reason: String },
    #[error(transparent)]
    Faults(#[from] parm_workload::Error),
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Simulator(#[from] parm_simulator::Error),
}
