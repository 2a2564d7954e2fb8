//! Frames on the wire: a header of 16 bytes, and a body in a few chunks, so that large tensors are written without copying.
//!
//! Asks and grants are bare headers, whose id holds everything:
//!
//! ```text
//! granted, recalled, return   id: 0
//! shared                      id: 1 if other clients use the server too, otherwise 0
//! ask                         id: jobs u16 | class u8 | 0 u8 | wait of the oldest in microseconds u32, from the lowest bit on
//! ```

use std::time::Duration;

use bytes::Bytes;
use parm_grants::{Ask, Class, Order, Told};
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Request = 1,
    Response = 2,
    Failure = 3,
    Cancel = 4,
    Ping = 5,
    Pong = 6,
    /// The sender starts no more requests (client) or accepts no more (server).
    GoAway = 7,
    /// The client may start a job.
    Granted = 8,
    /// The server wants an unused grant back.
    Recalled = 9,
    /// Whether the client shares the server with other clients.
    Shared = 10,
    /// What the client would start at the server.
    Ask = 11,
    /// The client does not use a grant.
    Return = 12,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        let all =
            [Request, Response, Failure, Cancel, Ping, Pong, GoAway, Granted, Recalled, Shared, Ask, Return];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame's header: body length u32, kind u8, three marker bytes, request id u64; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The request that the frame belongs to, or 0.
    pub(super) id: u64,
    /// Bytes that follow; a multiple of [`ALIGNMENT`].
    pub(super) body: u32,
}

pub(super) const LENGTH: usize = 16;

/// Alignment of frames, heads and tensors, so that numbers can be read in place.
pub(super) const ALIGNMENT: usize = 8;

/// Present in every header, to detect a stream that lost its place or is not ours.
const MARKER: [u8; 3] = *b"prm";

impl Header {
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&self.body.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5..8].copy_from_slice(&MARKER);
        bytes[8..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a header.
    pub(super) fn from_bytes(bytes: &[u8; LENGTH]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (marks, id) = rest.split_first_chunk::<4>()?;
        let body = u32::from_le_bytes(*length);
        if marks[1..] != MARKER || !(body as usize).is_multiple_of(ALIGNMENT) {
            return None;
        }
        Some(Self { kind: Kind::from_byte(marks[0])?, id: u64::from_le_bytes(*id.first_chunk()?), body })
    }
}

pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

/// The header and the body.
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

/// A server's message.
pub(super) fn told(told: Told) -> Frame {
    match told {
        Told::Granted => Frame::bare(Kind::Granted, 0),
        Told::Recalled => Frame::bare(Kind::Recalled, 0),
        Told::Shared(shared) => Frame::bare(Kind::Shared, shared.into()),
    }
}

/// Decodes a server's message; `None` if it is something else.
pub(super) fn read_told(header: &Header) -> Option<Told> {
    match header.kind {
        Kind::Granted => Some(Told::Granted),
        Kind::Recalled => Some(Told::Recalled),
        Kind::Shared => Some(Told::Shared(header.id != 0)),
        _ => None,
    }
}

/// A client's message.
pub(super) fn order(order: Order) -> Frame {
    match order {
        Order::Return => Frame::bare(Kind::Return, 0),
        Order::Ask(Ask { class, waited, jobs }) => {
            let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
            let id = u64::from(jobs) | (class as u64) << 16 | u64::from(waited) << 32;
            Frame::bare(Kind::Ask, id)
        }
    }
}

/// Decodes a client's message; `None` if it is something else.
pub(super) fn read_order(header: &Header) -> Option<Order> {
    match header.kind {
        Kind::Return => Some(Order::Return),
        Kind::Ask => {
            let class = match (header.id >> 16) as u8 {
                0 => Class::Late,
                1 => Class::First,
                _ => Class::Spare,
            };
            let waited = Duration::from_micros(header.id >> 32);
            Some(Order::Ask(Ask { class, waited, jobs: header.id as u16 }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire_and_garbage_is_refused() {
        let header = Header { kind: Kind::Cancel, id: u64::MAX - 1, body: 4096 };
        let bytes = header.to_bytes();
        assert_eq!(Header::from_bytes(&bytes), Some(header));
        for (at, wrong) in [(0, 1), (4, 0), (4, 16), (5, b'x'), (7, 0)] {
            let mut garbage = bytes;
            garbage[at] = wrong;
            assert_eq!(Header::from_bytes(&garbage), None, "byte {at} = {wrong}");
        }
    }

    #[test]
    fn longest_wait_is_sent() {
        let ask =
            |micros| Order::Ask(Ask { class: Class::First, waited: Duration::from_micros(micros), jobs: 1 });
        let frame = order(ask(u64::MAX));
        let header = Header::from_bytes(frame.chunks[0].first_chunk().unwrap()).unwrap();
        assert_eq!(read_order(&header), Some(ask(u32::MAX.into())));
    }
}
