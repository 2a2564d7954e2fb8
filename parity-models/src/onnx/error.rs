//! The errors of reading and rewriting ONNX files.

use std::path::PathBuf;

use super::{DataType, Finding};

/// A defect of an ONNX file. Messages name the tensor or the node and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Defect {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{what}' has {actual} bytes, the limit is {limit}: raise the limit or shrink the model")]
    TooLarge { what: String, actual: u64, limit: u64 },
    #[error("the file has more than {limit} nodes, names and other parts: simplify the model, or split it")]
    TooManyParts { limit: usize },
    #[error("invalid ONNX file: {message}")]
    Malformed { message: String },
    #[error("the file has no graph: export the model again")]
    NoGraph,
    #[error("tensor '{tensor}' has unknown element type {code}: export the model again")]
    UnknownDataType { tensor: String, code: i32 },
    #[error("tensor '{tensor}' has negative dimension {dim}: export the model again")]
    NegativeDimension { tensor: String, dim: i64 },
    #[error(
        "tensor '{tensor}' of {datatype} and dimensions {dims:?} needs {expected} bytes, the file has {actual}"
    )]
    TensorSize { tensor: String, datatype: DataType, dims: Vec<usize>, expected: usize, actual: usize },
    #[error("tensor '{tensor}' is too large: the product of dimensions {dims:?} overflows")]
    TensorOverflow { tensor: String, dims: Vec<usize> },
    #[error("tensor '{tensor}' is {actual}, expected {expected}")]
    TensorKind { tensor: String, expected: &'static str, actual: DataType },
    #[error("tensor '{tensor}' is stored in segments, which no exporter writes: export the model again")]
    Segmented { tensor: String },
    #[error("tensor '{tensor}' is in external file '{location}', but the model was not read from a folder")]
    ExternalWithoutFolder { tensor: String, location: String },
    #[error("tensor '{tensor}' is in external file '{location}', outside the model's folder: move it there")]
    ExternalOutside { tensor: String, location: String },
    #[error("tensor '{tensor}' needs bytes {offset}..{end} of external file '{location}', which has {size}")]
    ExternalRange { tensor: String, location: String, offset: u64, end: u64, size: u64 },
    #[error("tensor '{tensor}' has an invalid external data entry '{key}' = '{value}': expected a number")]
    ExternalEntry { tensor: String, key: String, value: String },
    #[error("{node}: attribute '{attribute}' is {actual}, expected {expected}")]
    AttributeKind { node: String, attribute: String, expected: &'static str, actual: &'static str },
    #[error("{node}: missing attribute '{attribute}': export the model again")]
    AttributeMissing { node: String, attribute: String },
    #[error("unknown weight '{tensor}': no initialiser or constant has that name: see `parm models inspect`")]
    UnknownWeight { tensor: String },
    #[error(
        "weight '{tensor}' is {expected_type} {expected:?} in the file, but {actual_type} {actual:?} is given: \
         give weights of the same type and dimensions"
    )]
    WeightMismatch {
        tensor: String,
        expected: Vec<i64>,
        expected_type: DataType,
        actual: Vec<usize>,
        actual_type: DataType,
    },
    #[error("cannot rewrite an invalid graph: {finding}")]
    Unsound { finding: Finding },
    #[error("input '{input}' has no second dimension for slots: use a code that needs one slot")]
    InputRank { input: String },
    #[error(
        "output '{output}' does not pass a Conv, Gemm or MatMul with constant weights after the input: slots need a \
         first layer to widen: use another code"
    )]
    NoFirstLayer { output: String },
    #[error(
        "output '{output}' does not come from a Conv, Gemm or MatMul with constant weights: slots need a last layer \
         to widen: use another code"
    )]
    NoLastLayer { output: String },
    #[error(
        "{node} reads '{value}', a form of the input, together with the output of a first layer, which cannot be \
         widened for slots: use another code"
    )]
    Joined { node: String, value: String },
    #[error("{node} is quantised: derive the parity graph from the float model")]
    Quantised { node: String },
    #[error(
        "cannot thin the network: {node} does not keep the features of a layer in their places: give a thin \
         architecture, or quantise the model"
    )]
    Unthinned { node: String },
    #[error("{node} has a body that reads values of each slot: inline it, or use a code that needs one slot")]
    ControlFlow { node: String },
}
