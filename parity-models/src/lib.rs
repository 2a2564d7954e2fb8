//! The model repository, parity bundles, and reading, checking and rewriting ONNX graphs

pub mod onnx;
