//! The gRPC side of the protocol: generated messages, and their conversion to and from our types.

mod bounded;
mod contents;
pub mod convert;

pub use bounded::decode_bounded;

/// Output of the protobuf compiler for `proto/open_inference.proto`; a test keeps the two in step.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
#[path = "generated/inference.rs"]
pub mod inference;

/// The compiled `.proto`, as reflection serves it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/inference.bin");

/// The service's full name.
pub const SERVICE: &str = "inference.GRPCInferenceService";
