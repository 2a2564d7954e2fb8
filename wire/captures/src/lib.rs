//! Captured queries in a folder: requests and the deployed model's answers, for building stand-ins.
//!
//! A frontend writes them ([`Folder`]), `parm stand-in` reads them ([`read()`]). A folder has one folder per model with
//! *segments*: append-only files, named by their start. A segment begins with its model; then follow [`Record`]s, each
//! with its length. A process that is killed loses the end of one record at most, and readers use whole records only.
//!
//! The folder is limited in size and age. Whole segments, each a sixteenth of the limit, are removed, the oldest first,
//! so little less than the limit is kept. Rejected: one file as a ring, which is never complete while it is written; a
//! file per query, which file systems handle slowly; npy files, which cannot hold rows of several sizes, nor be
//! appended to without rewriting their header.
//!
//! The files hold clients' data. Only their owner can read them, and only the limits remove them.

mod folder;
mod reading;
mod record;

pub use folder::{Folder, Keep, Limits, Source};
pub use reading::{Captured, read};
pub use record::Record;

/// An error of writing or reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{}: {reason}", path.display())]
    File { path: std::path::PathBuf, reason: String },
    #[error("{} holds no captured queries: name a folder that `parm serve --capture` wrote to", path.display())]
    Empty { path: std::path::PathBuf },
    #[error(
        "{} holds queries to {models}, none to '{wanted}': give --name with the name that the model was served under",
        path.display()
    )]
    OtherModel { path: std::path::PathBuf, models: String, wanted: String },
    #[error("{} holds more than {limit} bytes of queries to this model: give a folder with some of them", path.display())]
    TooLarge { path: std::path::PathBuf, limit: u64 },
    #[error("{} has format {format}, this version reads {known}: use the version that wrote it", path.display())]
    Format { path: std::path::PathBuf, format: u32, known: u32 },
}

impl Error {
    fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: error.to_string() }
    }
}
