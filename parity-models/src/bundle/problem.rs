//! What is wrong with a bundle.

use serde::Serialize;

use crate::onnx::Finding;

/// Something that does not fit. Messages say what to do.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error("{message}: put the model into the repository or train it again")]
    Missing { message: String },
    #[error("model '{model}' has no version {version}: available are {available:?}")]
    MissingVersion { model: String, version: u64, available: Vec<u64> },
    #[error(
        "model '{model}' version {version} is another file than the one that was bundled (sha256 {actual}, the \
         manifest says {expected}): restore the file or train the parity models for it"
    )]
    Digest { model: String, version: u64, expected: String, actual: String },
    #[error("model '{model}' cannot be read: {message}")]
    Unreadable { model: String, message: String },
    #[error("model '{model}' is broken: {finding}")]
    Unsound { model: String, finding: Finding },
    #[error("the code cannot be used: {message}")]
    Code { message: String },
    #[error("code {code} wants {wanted} parity models, the manifest names {named}")]
    Models { code: String, wanted: usize, named: usize },
    #[error(
        "a learned code wants an encoder and a decoder, and no other code may have them: see [parity.learned]"
    )]
    Learned,
    #[error("model '{model}' has no {side} '{tensor}': it has {available:?}")]
    NoTensor { model: String, side: &'static str, tensor: String, available: Vec<String> },
    #[error("{side} '{tensor}' of model '{model}' is {actual}, {wanted} is wanted")]
    Tensor { model: String, side: &'static str, tensor: String, wanted: String, actual: String },
    #[error(
        "model '{model}' has an {side} '{tensor}', which the deployed model has not: a stand-in has the same inputs and \
         outputs"
    )]
    Extra { model: String, side: &'static str, tensor: String },
    #[error(
        "the cost of stand-in '{model}' on engine {engine} must be a number above 0 for 1, 2, 4 and 8 rows"
    )]
    Cost { model: String, engine: String },
    #[error("the range of input '{input}' is empty, {low} to {high}: give the least and the greatest value")]
    Range { input: String, low: f32, high: f32 },
    #[error("tensor '{tensor}' has shape {shape:?}: give -1 for sizes that vary, and none below")]
    Shape { tensor: String, shape: Vec<i64> },
    #[error("the default answer of output '{output}' has {actual} values, a prediction has {wanted}")]
    DefaultAnswer { output: String, wanted: usize, actual: usize },
    #[error(
        "the calibration has temperature {temperature} and threshold {threshold}: give one above 0 and one in 0..=1"
    )]
    Calibration { temperature: f32, threshold: f32 },
    #[error(
        "the calibration's curve does not rise from pair to pair of numbers in 0..=1: leave it out, or calibrate again"
    )]
    Curve,
    #[error("{what} is {value}: it is a fraction of 1")]
    Fraction { what: String, value: f64 },
}
