//! Errors of grids.

use std::path::{Path, PathBuf};

/// An error of a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot {what} '{}': {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("invalid share '{given}': give I/N with I from 0 to N - 1, such as 0/4")]
    BadShare { given: String },
    #[error("unknown cell '{key}': --list prints the keys")]
    UnknownCell { key: String },
    #[error(
        "cell {name} has a result from other inputs ({input}) in '{}': use another folder for results",
        path.display()
    )]
    OtherInputs { name: String, input: String, path: PathBuf },
    #[error(
        "cell {name} has a result of parm {version} in '{}', this is {own}: use another folder for results",
        path.display(), own = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion { name: String, version: String, path: PathBuf },
    #[error("the lease of cell {name} expired while this process was paused: run the command again")]
    Lost { name: String },
}

impl Error {
    /// Builds the error of a file operation.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::File { what, path: path.into(), reason: error.to_string() }
    }
}
