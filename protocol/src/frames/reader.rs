//! Frames on their way in. One buffer receives many small frames or one large one, and bodies are slices of it, so
//! tensors stay where the kernel put them.

use std::io;

use bytes::{Bytes, BytesMut};

use super::header::{self, Header};
use super::socket::ReadHalf;

/// Read at a time; a chunk lives until the last tensor in it is dropped.
const CHUNK: usize = 64 << 10;

/// With less room than this a fresh chunk is taken, rather than many small reads at the end of the old one.
const LEAST_ROOM: usize = 8 << 10;

/// A frame that arrived.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) header: Header,
    pub(super) body: Bytes,
}

pub(super) struct Reader {
    half: ReadHalf,
    buffer: BytesMut,
    limit: usize,
}

impl Reader {
    /// `already_read` came with the negotiation; bodies over `limit` are refused.
    pub(super) fn new(half: ReadHalf, already_read: &[u8], limit: u32) -> Self {
        let mut buffer = BytesMut::with_capacity(CHUNK.max(already_read.len()));
        buffer.extend_from_slice(already_read);
        Self { half, buffer, limit: limit as usize }
    }

    /// The next frame; `None` where the peer closed between two frames.
    pub(super) async fn next(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            let missing = match self.peek()? {
                Some(header) => {
                    let whole = header::LENGTH + header.body as usize;
                    if self.buffer.len() >= whole {
                        let body = self.buffer.split_to(whole).freeze().slice(header::LENGTH..);
                        return Ok(Some(Incoming { header, body }));
                    }
                    whole - self.buffer.len()
                }
                None => header::LENGTH - self.buffer.len(),
            };
            self.make_room(missing);
            if self.half.read(&mut self.buffer).await? == 0 {
                let clean = self.buffer.is_empty();
                return if clean { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    fn peek(&self) -> io::Result<Option<Header>> {
        let Some(bytes) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        let header = Header::from_bytes(bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the peer sent something that is no frame")
        })?;
        if header.body as usize > self.limit {
            let message =
                format!("the peer sent a frame of {} bytes, over the limit of {}", header.body, self.limit);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Some(header))
    }

    fn make_room(&mut self, missing: usize) {
        if self.buffer.capacity() - self.buffer.len() < missing.max(LEAST_ROOM) {
            self.buffer.reserve(missing.max(CHUNK - self.buffer.len().min(CHUNK)));
        }
    }
}
