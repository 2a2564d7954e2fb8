//! What can be wrong with a problem or a recording.

/// An error of the tuner.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("an SLO of 0 ms: give the time within which an answer is worth something")]
    NoSlo,
    #[error("no instances: say how many there are")]
    NoInstances,
    #[error(
        "{rate:.1} queries per second arrive and {instances} instances can do {can:.1}: no policy helps, add instances or allow larger batches"
    )]
    Overload { rate: f64, can: f64, instances: u32 },
    #[error("an accuracy of {value}: give a fraction from 0 to 1, such as 0.93")]
    NoAccuracy { value: f64 },
    #[error(
        "the bundle has no measured accuracy: run `parm evaluate` on it, or give accuracies on the command line"
    )]
    NotMeasured,
    #[error("{queries} queries in the last stage: give at least {least}, fewer tell no two candidates apart")]
    FewQueries { queries: u64, least: u64 },
    #[error(
        "not enough data: {values} measured service times say nothing about p99.9, which takes 10000; measure longer, or ask for goodput without a limit on p99.9"
    )]
    SmallSample { values: usize },
    #[error("line {line} of the recording cannot be used: {reason}")]
    BadLine { line: usize, reason: String },
    #[error("the recording is of format {format}, this version reads format {known}: record anew")]
    OtherFormat { format: u32, known: u32 },
    #[error("the recording has more than {limit} lines: cut it")]
    LongRecording { limit: usize },
    #[error("the recording has more than {limit} queries: cut it")]
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
        "{jobs} jobs of the deployed model are recorded: a profile needs at least {least}, record longer"
    )]
    FewJobs { jobs: usize, least: usize },
    #[error("'{url}' cannot be measured: {reason}")]
    Unmeasured { url: String, reason: String },
    #[error(transparent)]
    Faults(#[from] parm_workload::Error),
    #[error(transparent)]
    Load(#[from] parm_loadgen::Error),
    #[error(transparent)]
    Simulator(#[from] parm_simulator::Error),
}
