//! Tests of reading, checking and rewriting ONNX files, and of verifying bundles.

mod bundle;
mod files;
mod hostile;
mod rewrite;
mod sample;
