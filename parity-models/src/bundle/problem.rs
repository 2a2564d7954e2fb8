//! The problems that verifying a bundle can find.

use serde::Serialize;

use crate::onnx::Finding;

/// A mismatch between a bundle and its files. Messages contain the remedy.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)] // the messages explain the fields
pub enum Problem {
    #[error("{message}: put the model into the repository or train it again")]
    Missing { message: String },
    #[error("model '{model}' has no version {version}: available are {available:?}")]
    MissingVersion { model: String, version: u64, available: Vec<u64> },
    #[error(
        "model '{model}' version {version} is not the bundled file (sha256 {actual}, the manifest has {expected}): \
         restore the file or train the parity models for it"
    )]
    Digest { model: String, version: u64, expected: String, actual: String },
    #[error("cannot read model '{model}': {message}")]
    Unreadable { model: String, message: String },
    #[error("invalid model '{model}': {finding}")]
    Unsound { model: String, finding: Finding },
    #[error("unusable code: {message}")]
    Code { message: String },
    #[error(
        "code {code} needs {wanted} parity models, the manifest names {named}: correct [[parity.models]]"
    )]
    Models { code: String, wanted: usize, named: usize },
    #[error(
        "a learned code needs an encoder and a decoder, other codes must have none: check [parity.learned]"
    )]
    Learned,
    #[error("model '{model}' has no {side} '{tensor}': it has {available:?}")]
    NoTensor { model: String, side: &'static str, tensor: String, available: Vec<String> },
    #[error("{side} '{tensor}' of model '{model}' is {actual}, expected {wanted}")]
    Tensor { model: String, side: &'static str, tensor: String, wanted: String, actual: String },
    #[error(
        "model '{model}' has an additional {side} '{tensor}': a stand-in needs the inputs and outputs of the deployed model"
    )]
    Extra { model: String, side: &'static str, tensor: String },
    #[error(
        "invalid cost of stand-in '{model}' on engine {engine}: give numbers above 0 for 1, 2, 4 and 8 rows"
    )]
    Cost { model: String, engine: String },
    #[error("invalid range of input '{input}', {low} to {high}: give the smallest and the largest value")]
    Range { input: String, low: f32, high: f32 },
    #[error("tensor '{tensor}' has shape {shape:?}: give -1 for sizes that vary, and none below")]
    Shape { tensor: String, shape: Vec<i64> },
    #[error(
        "the default answer of output '{output}' has {actual} values, expected {wanted} as in a prediction"
    )]
    DefaultAnswer { output: String, wanted: usize, actual: usize },
    #[error(
        "invalid calibration, temperature {temperature} and threshold {threshold}: give one above 0 and one in 0..=1"
    )]
    Calibration { temperature: f32, threshold: f32 },
    #[error("invalid curve of the calibration: pairs must rise and be in 0..=1: omit it, or calibrate again")]
    Curve,
    #[error("invalid fraction, {what} is {value}: give a number from 0 to 1")]
    Fraction { what: String, value: f64 },
}
