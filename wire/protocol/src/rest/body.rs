//! An encoded body: JSON and small tensors in one buffer, large tensors by reference.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use smallvec::SmallVec;

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

impl From<Encoded> for Full<Bytes> {
    fn from(encoded: Encoded) -> Self {
        Full::new(encoded.into_bytes())
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
