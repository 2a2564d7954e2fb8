//! What can go wrong between a model file and a stand-in for it.

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
        "the graph has {nodes} nodes, more than {limit}: a stand-in for it has to be made with the tools that made it"
    )]
    TooManyNodes { nodes: usize, limit: usize },
    #[error(
        "the model has {wanted} inputs ({names}), data for {given} was given: give an array for each, in this order"
    )]
    Inputs { wanted: usize, given: usize, names: String },
    #[error(
        "input '{input}' takes rows of {wanted}, the data has rows of {actual:?}: give rows as the model is sent them"
    )]
    RowShape { input: String, wanted: String, actual: Vec<usize> },
    #[error("input '{input}' takes {wanted}, which cannot be made of {actual}")]
    RowType { input: String, wanted: String, actual: String },
    #[error(
        "the data for input '{input}' has shape {actual:?}, which holds no element: give an array of rows"
    )]
    NoElement { input: String, actual: Vec<usize> },
    #[error("the inputs have {counts:?} rows: give as many of each")]
    RowCounts { counts: Vec<usize> },
    #[error(
        "{given} rows are too few: give {wanted} at least, to quantise with some and judge on the others"
    )]
    TooFewRows { given: usize, wanted: usize },
    #[error("the rows have {bytes} bytes, more than {limit}: give fewer")]
    TooManyBytes { bytes: u64, limit: u64 },
    #[error(
        "input '{input}' takes {rows} rows at a time: export the model with a batch that varies, or with 1"
    )]
    FixedBatch { input: String, rows: i64 },
    #[error("{count} rows went into the model, {actual} answers came out of '{output}'")]
    Answers { output: String, count: usize, actual: usize },
    #[error("the deployed model answers with what is no number on row {row}: take that row out")]
    NotFinite { row: usize },
    #[error("cannot write '{}': {message}", path.display())]
    Write { path: PathBuf, message: String },
    #[error("stopped before it was done")]
    Stopped,
}
