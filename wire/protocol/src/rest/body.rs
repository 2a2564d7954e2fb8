//! A body: JSON, and the raw tensors that follow it. Written, small tensors are in one buffer with the JSON and large ones are
//! references; read, tensors are slices.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smallvec::SmallVec;

use crate::Error;

/// Copying fewer bytes than this costs less than writing one more piece.
const COPY_BELOW: usize = 4096;

/// A body in pieces, and the length of its JSON if the binary extension is used.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    json_length: Option<usize>,
    chunks: SmallVec<[Bytes; 3]>,
}

impl Encoded {
    /// Joins the JSON and the raw tensors that follow it.
    pub(super) fn new(mut json: Vec<u8>, blobs: &[&Bytes]) -> Self {
        if blobs.is_empty() {
            return Self { json_length: None, chunks: SmallVec::from_iter([Bytes::from(json)]) };
        }
        let json_length = Some(json.len());
        let mut chunks = SmallVec::new();
        for blob in blobs {
            if blob.len() < COPY_BELOW {
                json.extend_from_slice(blob);
                continue;
            }
            if !json.is_empty() {
                chunks.push(Bytes::from(std::mem::take(&mut json)));
            }
            chunks.push(Bytes::clone(blob));
        }
        if !json.is_empty() {
            chunks.push(Bytes::from(json));
        }
        Self { json_length, chunks }
    }

    /// The value of the `Inference-Header-Content-Length` header; `None` when the body is all JSON.
    pub fn json_length(&self) -> Option<usize> {
        self.json_length
    }

    /// The pieces in order.
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole body in one piece; copies when there are several.
    pub fn into_bytes(mut self) -> Bytes {
        match self.chunks.len() {
            1 => self.chunks.remove(0),
            _ => Bytes::from(self.chunks.concat()),
        }
    }
}

impl From<Bytes> for Encoded {
    /// A body that is not of the protocol.
    fn from(body: Bytes) -> Self {
        let chunks = if body.is_empty() { SmallVec::new() } else { SmallVec::from_iter([body]) };
        Self { json_length: None, chunks }
    }
}

impl Body for Encoded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready((!self.chunks.is_empty()).then(|| Ok(Frame::data(self.chunks.remove(0)))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

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
            return Err(Error::malformed(format!(
                "Inference-Header-Content-Length says {length} bytes of JSON, the body has {}",
                body.len()
            )));
        }
        let json = body.split_to(length);
        Ok((json, Blobs { rest: body }))
    }

    pub(super) fn take(&mut self, tensor: &str, size: usize) -> Result<Bytes, Error> {
        if size > self.rest.len() {
            return Err(Error::malformed(format!(
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
            left => Err(Error::malformed(format!(
                "{left} bytes follow the last binary tensor: check binary_data_size"
            ))),
        }
    }
}
