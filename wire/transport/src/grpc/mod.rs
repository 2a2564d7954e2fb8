//! The gRPC client that the protobuf compiler makes; its messages are `parm_protocol::grpc::inference`.

/// Output of the protobuf compiler for the service in `open_inference.proto`; a test keeps the two in step.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
#[path = "generated/inference.rs"]
pub mod inference;
