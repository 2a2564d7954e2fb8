//! An outgoing frame: a few chunks, so that large tensors are written without copying.

use bytes::{Bytes, BytesMut};
use parm_protocol::Error;
use smallvec::SmallVec;

use super::header::{self, Header, Kind, padded};

/// Tensors up to this size are copied after the head, which costs less than another slice for the system call.
const INLINE: usize = 8 << 10;

/// The chunks to send, in order.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) chunks: SmallVec<[Bytes; 4]>,
}

impl Frame {
    /// A frame that is only a header.
    pub(super) fn bare(kind: Kind, id: u64) -> Self {
        let header = Header { kind, id, body: 0 };
        Self { chunks: SmallVec::from_iter([Bytes::copy_from_slice(&header.to_bytes())]) }
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

/// Builds a frame whose body is a head (its length as u32 in front) and then tensors' bytes, each part padded.
pub(super) struct Builder {
    bytes: BytesMut,
}

/// Offsets of the head's length and of the head.
const HEAD_AT: usize = header::LENGTH + 4;

impl Builder {
    /// `expected`: approximate bytes of the head and the small tensors.
    pub(super) fn new(expected: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEAD_AT + expected);
        bytes.resize(HEAD_AT, 0);
        Self { bytes }
    }

    /// The head, to be appended to.
    pub(super) fn head(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Adds the tensors and fills in the header; `limit` is the largest body that the peer accepts.
    pub(super) fn finish<'a, D>(self, kind: Kind, id: u64, data: D, limit: usize) -> Result<Frame, Error>
    where
        D: Iterator<Item = &'a Bytes> + Clone,
    {
        let Self { mut bytes } = self;
        let head = bytes.len() - HEAD_AT;
        let body = data.clone().fold(padded(4 + head), |sum, data| sum.saturating_add(padded(data.len())));
        let length =
            u32::try_from(body).ok().filter(|_| body <= limit).ok_or(Error::BodyTooLarge { limit })?;
        bytes[..header::LENGTH].copy_from_slice(&Header { kind, id, body: length }.to_bytes());
        bytes[header::LENGTH..HEAD_AT].copy_from_slice(&(head as u32).to_le_bytes());
        bytes.resize(header::LENGTH + padded(4 + head), 0);

        let mut chunks = SmallVec::new();
        for data in data {
            if data.len() <= INLINE {
                bytes.extend_from_slice(data);
            } else {
                chunks.push(bytes.split().freeze());
                chunks.push(data.clone());
            }
            bytes.resize(bytes.len() + padded(data.len()) - data.len(), 0);
        }
        if !bytes.is_empty() {
            chunks.push(bytes.freeze());
        }
        Ok(Frame { chunks })
    }
}
