//! Errors of the search for a stand-in.

use std::path::PathBuf;

use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::Defect;

use crate::memory::in_words;

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
    #[error("inputs {names} have {counts:?} rows: give the same number for each, on the first axis")]
    RowCounts { names: String, counts: Vec<usize> },
    #[error("{given} rows are too few: some calibrate and the others judge: give at least {wanted}")]
    TooFewRows { given: usize, wanted: usize },
    #[error(
        "{given} rows, of which only {distinct} are different, are too few: give at least {wanted} different rows"
    )]
    TooFewDistinct { given: usize, distinct: usize, wanted: usize },
    #[error("input '{input}' has NaN or infinity in row {row}: remove that row")]
    NotFiniteInput { input: String, row: usize },
    #[error("the rows have {bytes} bytes, more than {limit}: give fewer rows")]
    TooManyBytes { bytes: u64, limit: u64 },
    #[error(
        "the first axis of input '{input}' has {rows} elements: rows must be on it, so export it with a dynamic size, or with 1"
    )]
    FixedBatch { input: String, rows: i64 },
    #[error("{count} rows went into the model, {actual} answers came out of '{output}'")]
    Answers { output: String, count: usize, actual: usize },
    #[error("the model has no output '{output}': it has {known}")]
    NoOutput { output: String, known: String },
    #[error(
        "output '{output}' has one column, whose best class is always the same, so it is not {meaning}: \
         use --meaning {output}=decision:THRESHOLD or {output}=values"
    )]
    OneColumn { output: String, meaning: Meaning },
    #[error(
        "the labels contradict the model: it is right on {right} %, the most frequent label would be on {usual} %: \
         correct the labels, or name their output with --label-output"
    )]
    Labels { right: String, usual: String },
    #[error(
        "the labels do not fit the model: it is right on {right} % of the rows, on {chance} % with shuffled labels: correct the \
         labels and their order, name their output with --label-output, or leave them out"
    )]
    ChanceLabels { right: String, chance: String },
    #[error(
        "labels were given, but no output is a class: use --meaning OUTPUT=decision:THRESHOLD or OUTPUT=logits"
    )]
    NoClasses,
    #[error(
        "a constant answer agrees with the deployed model on {agreement} of the {rows} rows that judge, so no stand-in could \
         be surely better: give rows with more different answers, or more rows"
    )]
    Constant { agreement: String, rows: usize },
    #[error(
        "the deployed model answers row {row} with NaN or infinity, which servers withhold: remove it, or export finite scores"
    )]
    NotFinite { row: usize },
    #[error("cannot write '{}': {message}", path.display())]
    Write { path: PathBuf, message: String },
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error(
        "its values of one row take {}, more than {}: it is not tried",
        in_words(*.bytes), in_words(*.limit)
    )]
    Values { bytes: u64, limit: u64 },
    #[error("the time limit ended before a candidate was made, so nothing was measured: raise --time-limit")]
    NothingMade,
    #[error("stopped before the search was finished")]
    Stopped,
}
