//! Everything that can be wrong with an ONNX file or with what is asked of it.

use std::path::PathBuf;

use super::DataType;

/// An error about an ONNX file. Messages name the tensor or the node and say what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{what}' has {actual} bytes, the limit is {limit}: raise the limit or shrink the model")]
    TooLarge { what: String, actual: u64, limit: u64 },
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
}
