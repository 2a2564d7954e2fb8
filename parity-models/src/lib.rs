//! The model repository, parity bundles, and reading, checking and rewriting ONNX graphs

mod error;
pub mod onnx;
pub mod repository;

pub use error::Error;
