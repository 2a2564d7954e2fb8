//! The REST side of the protocol: JSON, and the binary tensor extension that carries tensors as raw bytes behind it.
//!
//! The codecs are pure and go both ways: the server decodes requests and encodes responses, the client the reverse.
//! With the extension a body is `JSON, blob, blob, ...`; the `Inference-Header-Content-Length` header says where the
//! JSON ends, and each blob's size stands beside its tensor. Decoded tensors are slices of the body and encoded bodies
//! refer to the tensors' bytes, so large tensors are never copied here. What the extension's parameters say
//! (`binary_data`, `binary_data_size`, `binary_data_output`) stops at the codec.

mod blobs;
mod body;
mod data;
mod few;
mod parameters;
mod problem;
pub mod request;
pub mod response;
mod statistics;
mod tensor;

pub use body::Encoded;
pub use problem::{decode as decode_error, encode as encode_error, shorten};
pub use statistics::{decode as decode_statistics, encode as encode_statistics};

/// The header that says how many bytes of the body are JSON, in the case that HTTP/2 wants.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// How the client wants its outputs: as raw bytes or as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// For outputs without a word of their own.
    pub binary: bool,
    /// Outputs with a word of their own.
    pub outputs: Vec<(String, bool)>,
}

impl Wanted {
    /// Every output as raw bytes.
    pub const BINARY: Wanted = Wanted { binary: true, outputs: Vec::new() };
    /// Every output as JSON.
    pub const JSON: Wanted = Wanted { binary: false, outputs: Vec::new() };

    fn is_binary(&self, output: &str) -> bool {
        self.outputs.iter().find(|(name, _)| name == output).map_or(self.binary, |(_, binary)| *binary)
    }
}

/// An error about the shape of a request or response, as opposed to its meaning.
fn malformed(message: impl Into<String>) -> crate::Error {
    crate::Error::Malformed { message: message.into() }
}
