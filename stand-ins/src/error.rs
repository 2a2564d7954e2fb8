//! Errors of the search for a stand-in.

use std::path::PathBuf;

use parm_parity_models::onnx::Defect;

/// An error of the search for a stand-in.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error(transparent)]
    Graph(#[from] Defect),
    #[error(transparent)]
    Engine(#[from] parm_backend::Error),
    #[error(transparent)]
    Tensor(#[from] parm_protocol::Error),
    #[error(transparent)]
    Bundle(#[from] parm_parity_models::Error),
    #[error(
        "the graph has {nodes} nodes, more than {limit}: make a stand-in with the tools that exported it"
    )]
    TooManyNodes { nodes: usize, limit: usize },
    #[error(
        "the model has {wanted} inputs ({names}), got {given} arrays: give one array per input in this order"
    )]
    Inputs { wanted: usize, given: usize, names: String },
    #[error(
        "input '{input}' takes rows of {wanted}, the data has rows of {actual:?}: give rows as clients send them"
    )]
    RowShape { input: String, wanted: String, actual: Vec<usize> },
    #[error("input '{input}' takes {wanted}, {actual} cannot be converted: give numbers of that type")]
    RowType { input: String, wanted: String, actual: String },
    #[error(
        "the data for input '{input}' has shape {actual:?}, which has no elements: give an array of rows"
    )]
    NoElement { input: String, actual: Vec<usize> },
    #[error("the inputs have {counts:?} rows: give the same number for each")]
    RowCounts { counts: Vec<usize> },
    #[error("{given} rows are too few: some calibrate and the others judge: give at least {wanted}")]
    TooFewRows { given: usize, wanted: usize },
    #[error("the rows have {bytes} bytes, more than {limit}: give fewer rows")]
    TooManyBytes { bytes: u64, limit: u64 },
    #[error(
        "input '{input}' takes {rows} rows at a time: export the model with a dynamic batch dimension, or with 1"
    )]
    FixedBatch { input: String, rows: i64 },
    #[error("{count} rows went into the model, {actual} answers came out of '{output}'")]
    Answers { output: String, count: usize, actual: usize },
    #[error("the deployed model's output for row {row} is not finite: remove that row")]
    NotFinite { row: usize },
    #[error("cannot write '{}': {message}", path.display())]
    Write { path: PathBuf, message: String },
    #[error("stopped before the search was finished")]
    Stopped,
}
