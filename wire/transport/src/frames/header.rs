//! The sixteen bytes in front of every frame.

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Request = 1,
    Response = 2,
    Failure = 3,
    /// The client no longer wants the answer.
    Cancel = 4,
    Ping = 5,
    Pong = 6,
    /// The sender starts no more requests (client) or wants no more of them (server).
    GoAway = 7,
    /// A token for the client.
    Granted = 8,
    /// The server wants a token back.
    Recalled = 9,
    /// The client gives a token back.
    GiveBack = 10,
    /// The client has a job for the next instance that is free.
    Reserve = 11,
    /// It has none any more.
    Withdraw = 12,
    /// The next request uses a token.
    Redeem = 13,
    /// Whether the client shares the server with others.
    Sharing = 14,
    /// What the token was reserved for that is granted next.
    Met = 15,
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
            10 => Kind::GiveBack,
            11 => Kind::Reserve,
            12 => Kind::Withdraw,
            13 => Kind::Redeem,
            14 => Kind::Sharing,
            15 => Kind::Met,
            _ => return None,
        })
    }
}

/// A frame's header: body length u32, kind u8, three marker bytes, request id u64; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The request that the frame belongs to; 0 where it belongs to none.
    pub(super) id: u64,
    /// Bytes that follow; a multiple of [`ALIGNMENT`].
    pub(super) body: u32,
}

/// Length of a header on the wire.
pub(super) const LENGTH: usize = 16;

/// Frames, heads and tensors start at multiples of this, so that numbers can be read where they landed.
pub(super) const ALIGNMENT: usize = 8;

/// In every header: a stream that lost its place, or is not ours, is noticed at once.
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

    /// `None` where the bytes are no header.
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
