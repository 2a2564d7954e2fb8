//! The raw tensors that follow the JSON of a body, taken in order without copying.

use bytes::Bytes;

use super::malformed;
use crate::Error;

/// The rest of a body after its JSON.
pub(super) struct Blobs {
    rest: Bytes,
}

impl Blobs {
    /// Splits a body after `json_length` bytes; without a length the whole body is JSON.
    pub(super) fn split(mut body: Bytes, json_length: Option<usize>) -> Result<(Bytes, Blobs), Error> {
        let Some(length) = json_length else {
            return Ok((body, Blobs { rest: Bytes::new() }));
        };
        if length > body.len() {
            return Err(malformed(format!(
                "Inference-Header-Content-Length says {length} bytes of JSON, the body has {}",
                body.len()
            )));
        }
        let json = body.split_to(length);
        Ok((json, Blobs { rest: body }))
    }

    pub(super) fn take(&mut self, tensor: &str, size: usize) -> Result<Bytes, Error> {
        if size > self.rest.len() {
            return Err(malformed(format!(
                "tensor '{tensor}' says binary_data_size {size}, the body has {} bytes left: send the tensors in the order of the JSON, and Inference-Header-Content-Length",
                self.rest.len()
            )));
        }
        Ok(self.rest.split_to(size))
    }

    /// Rejects leftover bytes: sizes and bytes would disagree.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            left => {
                Err(malformed(format!("{left} bytes follow the last binary tensor: check binary_data_size")))
            }
        }
    }
}
