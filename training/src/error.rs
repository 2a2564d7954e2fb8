//! Everything that can go wrong in this crate.

use parm_parity_models::onnx;

use crate::graph::Problem;

/// An error of training. Messages say what to do next.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{node}: {problem}")]
    Node { node: String, problem: Problem },
    #[error("output '{output}' is made by no node: export the model again")]
    NoOutput { output: String },
    #[error("input '{input}' is missing: the model takes {wanted} inputs, {given} were given")]
    NoInput { input: String, wanted: usize, given: usize },
    #[error("input '{input}' is given {given:?} where {wanted} is wanted")]
    InputShape { input: String, given: Vec<usize>, wanted: String },
    #[error("output '{output}' holds {actual}, which has no gradient: train on an output of floats")]
    NoGradient { output: String, actual: &'static str },
    #[error("output {at} has shape {actual:?}, its gradient {given:?}")]
    GradientShape { at: usize, actual: Vec<usize>, given: Vec<usize> },
    #[error("the model has no parameter '{name}'")]
    NoParameter { name: String },
    #[error("parameter '{name}' has shape {actual:?}, the new value {given:?}")]
    ParameterShape { name: String, actual: Vec<usize>, given: Vec<usize> },
    #[error(transparent)]
    Onnx(#[from] onnx::Error),
}
