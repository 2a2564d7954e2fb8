//! gRPC without a framework: messages in their frames, and the methods of the protocol.

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::ModelMetadata;
use parm_protocol::grpc::inference as proto;
use prost::Message;

/// Bytes in front of each message: a flag, and the message's length.
pub(crate) const PREFIX: usize = 5;

/// The request of a method with one message each way.
pub trait Method: Message + Default {
    /// The path of the method.
    const PATH: &'static str;
    /// The message of the answer.
    type Answer: Message + Default;
}

/// A message in its frame.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    // A longer message could not be sent: the limits of bodies are lower.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode(&mut bytes).expect("the buffer has room");
    bytes.freeze()
}

/// The length of the message that follows a frame's prefix; an error for people if the prefix is invalid.
pub(crate) fn length(prefix: [u8; PREFIX]) -> Result<usize, String> {
    let [flag, length @ ..] = prefix;
    match flag {
        0 => usize::try_from(u32::from_be_bytes(length)).map_err(|error| error.to_string()),
        1 => Err("a message is compressed, and the call names no grpc-encoding".into()),
        other => Err(format!("a message has the flag {other}, which gRPC does not know")),
    }
}

/// The only message of a whole answer.
pub(crate) fn only<M: Message + Default>(body: Bytes) -> Result<M, String> {
    let Some((prefix, _)) = body.split_first_chunk::<PREFIX>() else {
        return Err("the answer has no message".into());
    };
    if length(*prefix)? != body.len() - PREFIX {
        return Err("the answer is not one whole message".into());
    }
    M::decode(body.slice(PREFIX..)).map_err(|error| error.to_string())
}

impl Method for proto::ModelInferRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ModelInfer";
    type Answer = proto::ModelInferResponse;
}

impl Method for proto::ServerLiveRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ServerLive";
    type Answer = proto::ServerLiveResponse;
}

impl Method for proto::ServerReadyRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ServerReady";
    type Answer = proto::ServerReadyResponse;
}

impl Method for proto::ServerMetadataRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ServerMetadata";
    type Answer = proto::ServerMetadataResponse;
}

impl Method for proto::ModelReadyRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ModelReady";
    type Answer = proto::ModelReadyResponse;
}

impl Method for proto::ModelMetadataRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ModelMetadata";
    type Answer = ModelMetadata;
}

impl Method for proto::ModelConfigRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ModelConfig";
    type Answer = proto::ModelConfigResponse;
}

impl Method for proto::ModelStatisticsRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/ModelStatistics";
    type Answer = proto::ModelStatisticsResponse;
}

impl Method for proto::RepositoryIndexRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/RepositoryIndex";
    type Answer = proto::RepositoryIndexResponse;
}

impl Method for proto::RepositoryModelLoadRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/RepositoryModelLoad";
    type Answer = proto::RepositoryModelLoadResponse;
}

impl Method for proto::RepositoryModelUnloadRequest {
    const PATH: &'static str = "/inference.GRPCInferenceService/RepositoryModelUnload";
    type Answer = proto::RepositoryModelUnloadResponse;
}
