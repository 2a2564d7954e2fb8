//! Errors of an evaluation.

/// An error of an evaluation. Messages name the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Mismatch {
    #[error("{rows} rows are too few for a group of k = {k}: give more data or a smaller k")]
    NoGroup { rows: usize, k: usize },
    #[error("the groups have {groups} queries, the code takes {code}: draw them with the code's k")]
    GroupSize { groups: usize, code: usize },
    #[error("{what}: {actual} rows instead of {expected}: use the same data and groups")]
    Rows { what: &'static str, expected: usize, actual: usize },
    #[error("{what}: {actual} values per row instead of {expected}: check that it is the right model")]
    Width { what: &'static str, expected: usize, actual: usize },
    #[error("{actual} sets of parity outputs, but the code makes {expected} coded queries per group")]
    Parities { expected: usize, actual: usize },
    #[error(
        "row {row} has label {label}, the model has {classes} classes: check that it is the right labels file"
    )]
    Label { row: usize, label: usize, classes: usize },
    #[error("{metric} cannot judge {truth}: choose another metric or other labels")]
    Metric { metric: &'static str, truth: &'static str },
    #[error("'{text}' is not a metric: use top-1 (or another number), iou or absolute-error")]
    NoMetric { text: String },
    #[error("code {kind} takes {expected} parity models but got {actual}")]
    Models { kind: parm_encoder::Kind, expected: usize, actual: usize },
    #[error(transparent)]
    Network(Box<crate::Error>),
    #[error(transparent)]
    Code(#[from] parm_encoder::Error),
}

impl From<crate::Error> for Mismatch {
    fn from(error: crate::Error) -> Self {
        Mismatch::Network(Box::new(error))
    }
}
