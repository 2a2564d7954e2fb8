//! The Open Inference Protocol: tensors, requests, responses, their encodings, and the two main traits.
//!
//! Servers implement [`InferenceService`], clients implement [`client::Client`]. The crate opens no socket: servers,
//! clients and frames are the crate `transport`. It has no notion of coding, dispatch or engines.

mod absence;
pub mod bounds;
pub mod client;
mod codes;
mod datatype;
mod error;
pub mod fleet;
pub mod grpc;
mod infer;
mod metadata;
mod opaque;
mod parameter;
pub mod place;
mod request_stream;
pub mod rest;
mod service;
mod tensor;
pub mod terms;
pub mod texts;
pub mod validate;

pub use absence::Absence;
pub use codes::StableCode;
pub use datatype::DataType;
pub use error::{Code, Error, rounded};
pub use infer::{InferRequest, InferResponse, ModelRef, NamedTensor, RequestedOutput};
pub use metadata::{
    BatchStatistics, DurationStatistics, MEASURED_ROWS, ModelConfig, ModelConfigTensor, ModelIndex,
    ModelMetadata, ModelParameter, ModelStatistics, RequestStatistics, ServerMetadata, TensorMetadata,
};
pub use opaque::{
    Broken, FORWARDED_HOST, FORWARDED_SCHEME, FailedAnswer, OpaqueAnswer, OpaqueBody, OpaqueRequest,
    RestOfBody, grpc_status, has_message, is_grpc, is_grpc_failure,
};
pub use parameter::{Parameter, Parameters};
pub use place::Place;
pub use request_stream::{LARGEST_COPIED, ReaderHandle, RequestStream, StreamReader, Withdrawn};
pub use service::{Context, InferenceService, Transport};
pub use tensor::{Shape, Tensor};
pub use validate::{Rows, validate};
