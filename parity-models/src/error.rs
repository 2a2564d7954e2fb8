//! What can be wrong with a repository, a bundle or a graph.

use std::path::PathBuf;

/// An error of the model repository and what lies in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{name}' is not a model name: use letters, digits, '_', '-' and '.', not starting with a dot")]
    ModelName { name: String },
    #[error("'{}' is not a version: name it by a whole number from 1", path.display())]
    VersionNumber { path: PathBuf },
    #[error("model '{name}' has no version: put the file at {name}/1/model.onnx")]
    NoVersion { name: String },
    #[error("'{}' holds no model: put a model.onnx into it", path.display())]
    NoModelFile { path: PathBuf },
    #[error("'{}' holds several models, {found:?}: keep one of them", path.display())]
    SeveralModelFiles { path: PathBuf, found: Vec<String> },
    #[error("'{}' holds more than {limit} files: a version is one model and its external data", path.display())]
    TooManyFiles { path: PathBuf, limit: usize },
    #[error("no model '{name}' in the repository '{}'", root.display())]
    UnknownModel { name: String, root: PathBuf },
}
