//! Errors of a capture folder.

use std::path::PathBuf;

/// An error of writing or reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{} holds no captured queries: name a folder that `parm serve --capture` wrote to", path.display())]
    Empty { path: PathBuf },
    #[error(
        "{} holds queries to {models}, none to '{wanted}': give --name with the name that the model was served under",
        path.display()
    )]
    OtherModel { path: PathBuf, models: String, wanted: String },
    #[error("{} holds more than {limit} bytes of queries to this model: give a folder with some of them", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{} has format {format}, this version reads {known}: use the version that wrote it", path.display())]
    Format { path: PathBuf, format: u32, known: u32 },
}

impl Error {
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: error.to_string() }
    }
}
