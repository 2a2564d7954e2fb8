//! What can be wrong with an evaluation.

/// An error of evaluating. Messages say what to do next.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{rows} rows make no group of k = {k}: give more data or a smaller k")]
    NoGroup { rows: usize, k: usize },
    #[error("the groups are of {groups} queries, the code takes {code}: draw them with the code's k")]
    GroupSize { groups: usize, code: usize },
    #[error("{what}: {actual} rows where {expected} are wanted: are they of the same data and groups?")]
    Rows { what: &'static str, expected: usize, actual: usize },
    #[error("{what}: {actual} values a row where {expected} are wanted: is it the right model?")]
    Width { what: &'static str, expected: usize, actual: usize },
    #[error("{actual} sets of parity outputs where the code makes {expected} coded queries a group")]
    Parities { expected: usize, actual: usize },
    #[error(
        "row {row} has label {label}, the model tells {classes} classes apart: is it the right labels file?"
    )]
    Label { row: usize, label: usize, classes: usize },
    #[error("{metric} cannot judge {truth}: choose another metric or other labels")]
    Metric { metric: &'static str, truth: &'static str },
    #[error("'{text}' is no metric: top-1 (or another number), iou or absolute-error")]
    NoMetric { text: String },
    #[error("code {kind} wants {expected} parity models, {actual} were given")]
    Models { kind: parm_encoder::Kind, expected: usize, actual: usize },
    #[error(transparent)]
    Network(Box<crate::Error>),
    #[error(transparent)]
    Code(#[from] parm_encoder::Error),
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Error::Network(Box::new(error))
    }
}
