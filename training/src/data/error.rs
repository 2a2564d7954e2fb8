//! What can be wrong with files of data.

use std::path::PathBuf;

/// An error of reading data. Messages name the file and say what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{}' holds more than {limit} bytes: raise the limit", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("'{}' is not {expected}: {detail}", path.display())]
    Format { path: PathBuf, expected: &'static str, detail: String },
    #[error("'{}' says {expected} bytes of data, it has {actual}: fetch it again", path.display())]
    Length { path: PathBuf, expected: u64, actual: u64 },
    #[error("'{}' has shape {actual:?} where {expected} dimensions are wanted: is it the right file?", path.display())]
    Dimensions { path: PathBuf, expected: usize, actual: Vec<usize> },
    #[error("'{}' holds labels that are not whole numbers from 0 on", path.display())]
    Labels { path: PathBuf },
    #[error("{rows} rows but {labels} labels: are both files of the same set?")]
    LabelCount { rows: usize, labels: usize },
    #[error("row {row} holds a value that is not a finite number: clean the data")]
    NotFinite { row: usize },
}
