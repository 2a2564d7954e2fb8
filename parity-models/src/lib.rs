//! The model repository, parity bundles, and reading, checking and rewriting ONNX graphs

pub mod bundle;
pub mod onnx;
pub mod repository;

use std::path::PathBuf;

/// A failure of the model repository or of a file in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("invalid model name '{name}': use letters, digits, '_', '-' and '.', not starting with a dot")]
    ModelName { name: String },
    #[error("invalid version folder '{}': name it by a whole number from 1", path.display())]
    VersionNumber { path: PathBuf },
    #[error("model '{name}' has no version: put the file at {name}/1/model.onnx")]
    NoVersion { name: String },
    #[error("'{}' has no model file: put a model.onnx into it", path.display())]
    NoModelFile { path: PathBuf },
    #[error("'{}' is a folder: put the model's file in its place", path.display())]
    ModelFolder { path: PathBuf },
    #[error("'{}' has more than {limit} files: a version is one model and its external data", path.display())]
    TooManyFiles { path: PathBuf, limit: usize },
    #[error("unknown model '{name}': the repository '{}' does not have it", root.display())]
    UnknownModel { name: String, root: PathBuf },
    #[error("cannot write '{}': {message}", path.display())]
    Write { path: PathBuf, message: String },
    #[error("model '{name}' in '{}' has no parm.toml: train parity models for it", root.display())]
    NoBundle { name: String, root: PathBuf },
    #[error("invalid manifest '{}': {message}", path.display())]
    Manifest { path: PathBuf, message: String },
    #[error("unsupported manifest '{}': format {format}, expected {known}: use a newer version of parm", path.display())]
    ManifestFormat { path: PathBuf, format: u32, known: u32 },
}
