//! Errors of one node: in its settings when a graph is read, or in its inputs when it runs.

use parm_parity_models::onnx;

use crate::array::{broadcast, count};

/// A fault of one node; the error that carries it names the node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Problem {
    #[error(
        "operator {op} of opset {opset} cannot be trained through: replace it in the model, or use the model \
         as a black box and train another architecture"
    )]
    Operator { op: String, opset: i64 },
    #[error("attribute '{name}' is not supported: export the model without it")]
    Attribute { name: String },
    #[error("attribute '{name}' = {value} is not supported: use {expected}")]
    AttributeValue { name: String, value: String, expected: &'static str },
    #[error("output {at} is not supported: export the model without it")]
    Output { at: usize },
    #[error("input {at} is missing: export the model again")]
    MissingInput { at: usize },
    #[error("value '{name}' is read before any node makes it: export the model again")]
    Undefined { name: String },
    #[error("{actual} instead of {expected}")]
    Kind { expected: &'static str, actual: &'static str },
    #[error("shape {shape:?} instead of {expected} dimensions")]
    Rank { expected: usize, shape: Vec<usize> },
    #[error("shape {shape:?} has more than {limit} dimensions")]
    TooManyDimensions { shape: Vec<usize>, limit: usize },
    #[error("shape {shape:?} has more than {limit} elements: give a smaller batch or another model")]
    TooLarge { shape: Vec<usize>, limit: usize },
    #[error("shape {shape:?} has no elements: export the model again")]
    Empty { shape: Vec<usize> },
    #[error("shapes {left:?} and {right:?} do not fit together")]
    Broadcast { left: Vec<usize>, right: Vec<usize> },
    #[error("shape {from:?} cannot become {to:?}")]
    Reshape { from: Vec<usize>, to: Vec<usize> },
    #[error("axis {axis} of a tensor with {rank} dimensions")]
    Axis { axis: i64, rank: usize },
    #[error("index {index} into {size} elements")]
    Index { index: i64, size: usize },
    #[error("{what} {values:?} does not fit shape {shape:?}")]
    Size { what: &'static str, values: Vec<i64>, shape: Vec<usize> },
    #[error(transparent)]
    Onnx(#[from] onnx::Defect),
}

/// Maximum elements of one value: 8 GiB of floats. A model that needs more, by mistake or on purpose, is rejected
/// before the allocation, since a failed allocation ends the process.
const MOST_ELEMENTS: usize = 1 << 31;

/// Rejects a value that would have too many elements.
pub(super) fn within(shape: &[usize]) -> Result<(), Problem> {
    match count(shape) <= MOST_ELEMENTS {
        true => Ok(()),
        false => Err(Problem::TooLarge { shape: shape.into(), limit: MOST_ELEMENTS }),
    }
}

/// The dimensions of two values combined element by element.
pub(super) fn joint(left: &[usize], right: &[usize]) -> Result<Vec<usize>, Problem> {
    let misfit = || Problem::Broadcast { left: left.into(), right: right.into() };
    let shape = broadcast(left, right).ok_or_else(misfit)?;
    within(&shape)?;
    Ok(shape)
}

/// Rejects an empty value.
pub(super) fn filled(shape: &[usize]) -> Result<(), Problem> {
    match count(shape) {
        0 => Err(Problem::Empty { shape: shape.into() }),
        _ => Ok(()),
    }
}
