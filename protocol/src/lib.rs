//! The wire: tensors, the Open Inference Protocol over REST, gRPC and frames, one server and one client.
//!
//! Frontend and workers speak the same protocol north and south, so this crate holds ONE server, generic over
//! [`InferenceService`], and ONE client trait, [`client::Client`]. It knows nothing of coding, dispatch or engines.

pub mod bounds;
mod budget;
pub mod client;
mod datatype;
mod error;
pub mod frames;
pub mod grpc;
mod infer;
mod metadata;
mod parameter;
pub mod rest;
#[cfg(test)]
mod scripted;
pub mod server;
mod service;
mod tensor;
pub mod trace;
mod unread;
pub mod validate;

pub use budget::Budget;
pub use datatype::DataType;
pub use error::{Code, Error};
pub use infer::{InferRequest, InferResponse, ModelRef, NamedTensor, RequestedOutput};
pub use metadata::{
    BatchStatistics, DurationStatistics, ModelConfig, ModelConfigTensor, ModelIndex, ModelMetadata,
    ModelStatistics, ServerMetadata, TensorMetadata,
};
pub use parameter::{Parameter, Parameters};
pub use service::{Context, InferenceService, Transport};
pub use tensor::{Shape, Tensor};
pub use validate::{Rows, validate};
