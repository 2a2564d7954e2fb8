//! The REST side of the protocol: JSON, and the binary tensor extension.
//!
//! The codecs are pure and work both ways: the server decodes requests and encodes responses, the client the reverse.
//! With the extension a body is `JSON, blob, blob, ...`; the `Inference-Header-Content-Length` header has the length of
//! the JSON, and each tensor its blob's size. Decoded tensors are slices of the body and encoded bodies refer to the
//! tensors' bytes, so large tensors are never copied. The extension's parameters (`binary_data`, `binary_data_size`,
//! `binary_data_output`) end at the codec.

mod blobs;
mod body;
mod data;
mod few;
mod parameters;
mod problem;
pub mod request;
pub mod response;
mod tensor;

pub use body::Encoded;
pub use problem::{encode as encode_error, shorten};

/// The header with the length of the JSON in bytes, in the lower case that HTTP/2 requires.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// The form in which the client requests its outputs: raw bytes or JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// For outputs without their own setting.
    pub binary: bool,
    /// Outputs with their own setting.
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
