//! Everything that can be wrong with an ONNX file or with what is asked of it.

use std::path::PathBuf;

use super::{DataType, Finding};

/// An error about an ONNX file. Messages name the tensor or the node and say what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Defect {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{what}' has {actual} bytes, the limit is {limit}: raise the limit or shrink the model")]
    TooLarge { what: String, actual: u64, limit: u64 },
    #[error("the file has more than {limit} nodes, names and other parts: simplify the model, or split it")]
    TooManyParts { limit: usize },
    #[error("not an ONNX file: {message}")]
    Malformed { message: String },
    #[error("the file holds no graph: export the model again")]
    NoGraph,
    #[error("tensor '{tensor}' has element type {code}, which is none of ONNX: export the model again")]
    UnknownDataType { tensor: String, code: i32 },
    #[error("tensor '{tensor}' has dimension {dim}: export the model again")]
    NegativeDimension { tensor: String, dim: i64 },
    #[error(
        "tensor '{tensor}' of {datatype} and dimensions {dims:?} wants {expected} bytes, the file has {actual}"
    )]
    TensorSize { tensor: String, datatype: DataType, dims: Vec<usize>, expected: usize, actual: usize },
    #[error("tensor '{tensor}' has dimensions {dims:?}, whose product overflows")]
    TensorOverflow { tensor: String, dims: Vec<usize> },
    #[error("tensor '{tensor}' is {actual}, where {expected} is wanted")]
    TensorKind { tensor: String, expected: &'static str, actual: DataType },
    #[error("tensor '{tensor}' is stored in segments, which no exporter writes: export the model again")]
    Segmented { tensor: String },
    #[error("tensor '{tensor}' lies in external file '{location}', but the model was not read from a folder")]
    ExternalWithoutFolder { tensor: String, location: String },
    #[error(
        "tensor '{tensor}' lies in external file '{location}', outside the model's folder: move it there"
    )]
    ExternalOutside { tensor: String, location: String },
    #[error("tensor '{tensor}' wants bytes {offset}..{end} of external file '{location}', which has {size}")]
    ExternalRange { tensor: String, location: String, offset: u64, end: u64, size: u64 },
    #[error("tensor '{tensor}' has a wrong external data entry '{key}' = '{value}': a number is wanted")]
    ExternalEntry { tensor: String, key: String, value: String },
    #[error("{node}: attribute '{attribute}' is {actual}, where {expected} is wanted")]
    AttributeKind { node: String, attribute: String, expected: &'static str, actual: &'static str },
    #[error("{node}: attribute '{attribute}' is missing")]
    AttributeMissing { node: String, attribute: String },
    #[error("no initialiser or constant tensor is called '{tensor}': `parm models inspect` lists them")]
    UnknownWeight { tensor: String },
    #[error(
        "weight '{tensor}' is {expected_type} {expected:?} in the file, {actual_type} {actual:?} was given: \
         give weights of the same type and dimensions"
    )]
    WeightMismatch {
        tensor: String,
        expected: Vec<i64>,
        expected_type: DataType,
        actual: Vec<usize>,
        actual_type: DataType,
    },
    #[error("the graph is broken and cannot be rewritten: {finding}")]
    Unsound { finding: Finding },
    #[error(
        "input '{input}' has no second dimension in which slots could lie: use a code that needs one slot"
    )]
    InputRank { input: String },
    #[error(
        "output '{output}' does not pass a Conv, Gemm or MatMul with constant weights after the input: there is no \
         first layer to widen for slots, use another code"
    )]
    NoFirstLayer { output: String },
    #[error(
        "output '{output}' does not come from a Conv, Gemm or MatMul with constant weights: there is no last layer \
         to widen for slots, use another code"
    )]
    NoLastLayer { output: String },
    #[error(
        "{node} reads '{value}', which is still the input, beside what a first layer made of it: the first layer \
         cannot be widened for slots, use another code"
    )]
    Joined { node: String, value: String },
    #[error("{node} is quantised: derive the parity graph from the float model")]
    Quantised { node: String },
    #[error(
        "{node} does not keep the features of a layer in their places, so that its network cannot be made thinner: give a \
         thin architecture, or quantise the model"
    )]
    Unthinned { node: String },
    #[error("{node} has a body that reads values of each slot: inline it, or use a code that needs one slot")]
    ControlFlow { node: String },
}
