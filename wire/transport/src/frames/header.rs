//! The header of every frame: 16 bytes.

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Request = 1,
    Response = 2,
    Failure = 3,
    /// The client cancels the request.
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
        Some(match byte {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::Failure,
            4 => Kind::Cancel,
            5 => Kind::Ping,
            6 => Kind::Pong,
            7 => Kind::GoAway,
            8 => Kind::Granted,
            9 => Kind::Recalled,
            10 => Kind::Shared,
            11 => Kind::Ask,
            12 => Kind::Return,
            _ => return None,
        })
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

/// Length of a header on the wire.
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

/// The next multiple of [`ALIGNMENT`].
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
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
}
