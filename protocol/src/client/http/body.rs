//! A request's body: a few chunks, so that tensors are written from where they are.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Chunks of known total length. Cheap to clone: the bytes are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    chunks: VecDeque<Bytes>,
    length: u64,
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Self {
        let chunks: VecDeque<Bytes> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { chunks, length }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let chunk = this.chunks.pop_front();
        this.length -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
