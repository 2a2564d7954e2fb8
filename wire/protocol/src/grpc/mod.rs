//! The gRPC side of the protocol: generated messages and client, and their conversion to and from our own types.

mod bounded;
pub mod convert;
mod scan;

pub use bounded::Bounded;

/// What the protobuf compiler makes of `proto/open_inference.proto`; a test holds the two together.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
#[path = "generated/inference.rs"]
pub mod inference;

/// The compiled `.proto`, as reflection serves it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/inference.bin");

/// The service's full name.
pub const SERVICE: &str = "inference.GRPCInferenceService";
