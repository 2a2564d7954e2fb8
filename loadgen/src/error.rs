//! Errors of a load: its requirements, arrivals, inputs and labels.

/// An error of the load generator.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("'{text}' is not a requirement: write p99.9<=20ms, failed<=0.1% or accuracy>=95%")]
    BadRequirement { text: String },
    #[error(
        "input '{input}' takes texts, which npy and idx files do not hold: omit --input to send generated texts"
    )]
    TextRows { input: String },
    #[error(
        "input '{name}' of {rows} rows has more than {limit} elements: send fewer rows, or give a file with --input"
    )]
    TooLarge { name: String, rows: usize, limit: usize },
    #[error(
        "'{text}' is not an arrival process: write constant, poisson, gamma:CV, bursts:ON/OFF (as in bursts:200ms/800ms) or trace:FILE"
    )]
    BadShape { text: String },
    #[error("{path}: {detail}")]
    BadArray { path: String, detail: String },
    #[error("no file is given for input '{input}': name one with {input}=FILE")]
    NoFile { input: String },
    #[error("the model has no '{name}': name one of {known}")]
    NoSuchTensor { name: String, known: String },
    #[error("the model has several outputs: name the one of the labels with --label-output: {known}")]
    NoLabelOutput { known: String },
    #[error("the files have from {fewest} to {most} rows: give every input as many")]
    UnequalRows { fewest: usize, most: usize },
    #[error(
        "{rows} rows are not enough for a request of {wanted}: send fewer rows in a request, and at least one"
    )]
    TooFewRows { rows: usize, wanted: usize },
    #[error("model '{model}' takes one row at a time, not {rows}")]
    OneRowOnly { model: String, rows: usize },
    #[error(
        "output '{output}' of datatype {datatype} has no class: name one of several scores or of whole numbers"
    )]
    NoClasses { output: String, datatype: String },
    #[error(
        "label {label} has no column: output '{output}' has the columns 0 to {last}: number classes from 0, in their order"
    )]
    NoColumn { label: i64, output: String, last: i64 },
    #[error(
        "about {expected} requests would be kept and at most {most} are: send for a shorter time or at a lower rate"
    )]
    TooManySamples { expected: u64, most: usize },
    #[error(transparent)]
    Array(#[from] parm_arrays::Error),
    #[error(transparent)]
    Workload(#[from] parm_workload::Error),
    #[error(transparent)]
    Protocol(#[from] parm_protocol::Error),
}
