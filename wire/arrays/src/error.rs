//! Errors of reading an array.

use std::path::{Path, PathBuf};

/// A file that cannot be read, and the reason.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error("{0}")]
    Read(String),
    #[error("it has more than {limit} bytes: give a part of it")]
    TooLarge { limit: u64 },
    #[error("there are more than {limit} files: name a folder with fewer")]
    TooManyFiles { limit: usize },
    #[error("{0}")]
    Malformed(String),
    #[error("it says {expected} bytes of elements but has {actual} bytes of elements: fetch it again")]
    Length { expected: u64, actual: u64 },
}

impl Error {
    pub(crate) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.into(), problem }
    }
}

pub(crate) fn malformed(detail: impl Into<String>) -> Problem {
    Problem::Malformed(detail.into())
}
