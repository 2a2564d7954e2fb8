//! Errors of the search for a stand-in.

use std::io;
use std::path::Path;

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
    /// The model, its rows or their labels cannot be used: a sentence with the remedy.
    #[error("{0}")]
    Unusable(String),
    /// A file or an answer of the engine is not as it must be.
    #[error("{0}")]
    Failed(String),
    #[error("the time limit ended before a candidate was made, so nothing was measured: raise --time-limit")]
    NothingMade,
    #[error("stopped before the search was finished")]
    Stopped,
}

/// The error of something that cannot be used.
pub(crate) fn unusable<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Unusable(message.into()))
}

/// The error of a file that cannot be read or written.
pub(crate) fn file<T>(doing: &str, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    let failed = |error| Error::Failed(format!("cannot {doing} '{}': {error}", path.display()));
    result.map_err(failed)
}
