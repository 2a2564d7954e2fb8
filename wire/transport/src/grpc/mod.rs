//! The gRPC client that the protobuf compiler makes; its messages are `parm_protocol::grpc::inference`.

/// What the protobuf compiler makes of the service in `open_inference.proto`; a test holds the two together.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
#[path = "generated/inference.rs"]
pub mod inference;
