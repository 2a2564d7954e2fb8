//! Errors of reading data.

use std::path::PathBuf;

use parm_arrays::Problem;

/// An error of reading data. Messages name the file and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Unusable {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{}' holds more than {limit} bytes: raise the limit", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("'{}' is not {expected}: {detail}", path.display())]
    Format { path: PathBuf, expected: &'static str, detail: String },
    #[error("'{}' declares {expected} bytes of data but has {actual}: fetch it again", path.display())]
    Length { path: PathBuf, expected: u64, actual: u64 },
    #[error("'{}' has shape {actual:?} instead of {expected} dimensions: check that it is the right file", path.display())]
    Dimensions { path: PathBuf, expected: usize, actual: Vec<usize> },
    #[error("'{}' holds labels that are not whole numbers from 0 to 16777215", path.display())]
    Labels { path: PathBuf },
    #[error("{rows} rows but {labels} labels: use files of the same data set")]
    LabelCount { rows: usize, labels: usize },
    #[error("the inputs' arrays have {counts:?} rows: give the same number for each")]
    InputCounts { counts: Vec<usize> },
    #[error("row {row} holds a value that is not a finite number: clean the data")]
    NotFinite { row: usize },
    #[error("no row has label {class}, though {classes} classes are expected: check the labels")]
    EmptyClass { class: usize, classes: usize },
    #[error("'{}', line {line}: {detail}", path.display())]
    Line { path: PathBuf, line: u64, detail: String },
    #[error("'{}' holds more than {limit} files: split it", path.display())]
    TooManyFiles { path: PathBuf, limit: usize },
    #[error("'{}' has no column '{name}': it has {}", path.display(), available.join(", "))]
    NoColumn { path: PathBuf, name: String, available: Vec<String> },
    #[error("'{text}' is not a data source: {message}")]
    Source { text: String, message: String },
    #[error("setting '{name}': {message}")]
    Setting { name: String, message: String },
    #[error("'{source_text}' has no rows: give a source with data")]
    NoRows { source_text: String },
    #[error("cannot take rows {from}..{to} of {rows}: the range excludes its end and must not be empty")]
    Range { from: usize, to: usize, rows: usize },
    #[error("{held_out} of {rows} rows cannot be held out: leave some rows on each side")]
    HeldOut { held_out: usize, rows: usize },
    #[error("rows of shape {row:?} have no {channels} channels to normalise")]
    Channels { row: Vec<usize>, channels: usize },
    #[error(
        "the bundle's preprocessing has a number that is not finite, or a deviation of 0: publish it again"
    )]
    Preprocessing,
}

impl From<parm_arrays::Error> for Unusable {
    fn from(error: parm_arrays::Error) -> Self {
        let path = error.path;
        match error.problem {
            Problem::Read(message) => Self::Read { path, message },
            Problem::TooLarge { limit } => Self::TooLarge { path, limit },
            Problem::TooManyFiles { limit } => Self::TooManyFiles { path, limit },
            Problem::Malformed(detail) => Self::Format { path, expected: "an npy or idx file", detail },
            Problem::Length { expected, actual } => Self::Length { path, expected, actual },
        }
    }
}
