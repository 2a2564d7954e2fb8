//! The REST side of the protocol: JSON, and the binary tensor extension.
//!
//! The codecs are pure and work both ways: the server decodes requests and encodes responses, the client the reverse.
//! With the extension a body is `JSON, blob, blob, ...`; the `Inference-Header-Content-Length` header has the length of
//! the JSON, and each tensor its blob's size. Decoded tensors are slices of the body and encoded bodies refer to the
//! tensors' bytes, so large tensors are never copied. The extension's parameters (`binary_data`, `binary_data_size`,
//! `binary_data_output`) end at the codec.

mod body;
mod data;
mod parameters;
pub mod request;
pub mod response;
mod tensor;

use bytes::Bytes;
use serde::Serialize;

pub use body::Encoded;
pub(crate) use data::{Scalar, put};

use crate::Error;

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

/// Longer messages are cut: they may be a proxy's whole page, or quote a client.
const LONGEST_MESSAGE: usize = 2000;

/// The body of an error response: always `{"error": "<what failed and what to do>"}`.
pub fn encode_error(error: &Error) -> Bytes {
    #[derive(Serialize)]
    struct Problem<'a> {
        error: &'a str,
    }
    let mut message = error.to_string();
    shorten(&mut message);
    Bytes::from(serde_json::to_vec(&Problem { error: &message }).unwrap_or_default())
}

/// Cuts a message that is longer than an error or a line of a log should be.
pub fn shorten(message: &mut String) {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_error_message_is_cut() {
        let body = encode_error(&Error::invalid("é".repeat(1_000_000)));
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(read["error"].as_str().unwrap().chars().count(), LONGEST_MESSAGE);
    }
}
