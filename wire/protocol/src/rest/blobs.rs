//! The raw tensors behind the JSON of a body, taken one after another without copying.

use bytes::Bytes;

use super::malformed;
use crate::Error;

/// What is left of a body behind its JSON.
pub(super) struct Blobs {
    rest: Bytes,
}

impl Blobs {
    /// Splits a body after `json_length` bytes; without a length all of it is JSON.
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

    /// The next tensor's bytes.
    pub(super) fn take(&mut self, tensor: &str, size: usize) -> Result<Bytes, Error> {
        if size > self.rest.len() {
            return Err(malformed(format!(
                "tensor '{tensor}' says binary_data_size {size}, the body has {} bytes left: send the tensors in the order of the JSON, and Inference-Header-Content-Length",
                self.rest.len()
            )));
        }
        Ok(self.rest.split_to(size))
    }

    /// Nothing may be left over: it would mean that sizes and bytes disagree.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            left => {
                Err(malformed(format!("{left} bytes follow the last binary tensor: check binary_data_size")))
            }
        }
    }
}
