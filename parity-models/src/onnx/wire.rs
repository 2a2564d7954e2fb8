//! Splits protobuf messages into fields and joins them again.
//!
//! Decoding and encoding a whole file would drop unknown fields and copy every weight twice. A [`Rope`] is a message in
//! pieces: shared slices of the original file with new fields in between.

use bytes::{Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};

use super::Defect;

/// One field of a message: the position of the field and of its payload.
pub(super) struct Field {
    pub(super) number: u64,
    /// Tag, length and payload.
    pub(super) whole: Bytes,
    /// The content of a length-delimited field; the encoded number for other kinds.
    pub(super) payload: Bytes,
}

/// Splits a message into its fields.
pub(super) fn fields(message: &Bytes) -> Result<Vec<Field>, Defect> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at < message.len() {
        let start = at;
        let tag = varint(message, &mut at)?;
        let payload = match tag & 7 {
            0 => {
                let start = at;
                varint(message, &mut at)?;
                start..at
            }
            1 => at..at + 8,
            2 => {
                let length = varint(message, &mut at)?;
                at..at.saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
            }
            5 => at..at + 4,
            kind => return Err(malformed(format!("field {} has wire type {kind}", tag >> 3))),
        };
        at = payload.end;
        if at > message.len() {
            return Err(malformed(format!("field {} is truncated", tag >> 3)));
        }
        fields.push(Field {
            number: tag >> 3,
            whole: message.slice(start..at),
            payload: message.slice(payload),
        });
    }
    Ok(fields)
}

fn varint(message: &Bytes, at: &mut usize) -> Result<u64, Defect> {
    let mut rest = &message[*at..];
    let before = rest.len();
    let value = decode_varint(&mut rest).map_err(|error| malformed(error.to_string()))?;
    *at += before - rest.len();
    Ok(value)
}

fn malformed(message: String) -> Defect {
    Defect::Malformed { message }
}

/// A message in pieces.
#[derive(Default)]
pub(super) struct Rope {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Rope {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Appends encoded bytes unchanged.
    pub(super) fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        self.pieces.push(bytes);
    }

    /// Appends a length-delimited field with the content `body`.
    pub(super) fn push_field(&mut self, number: u64, body: Rope) {
        let mut header = BytesMut::new();
        encode_varint(number << 3 | 2, &mut header);
        encode_varint(body.length as u64, &mut header);
        self.push(header.freeze());
        self.length += body.length;
        self.pieces.extend(body.pieces);
    }

    pub(super) fn into_bytes(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.length);
        self.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.freeze()
    }
}

impl From<Bytes> for Rope {
    fn from(bytes: Bytes) -> Self {
        Self { length: bytes.len(), pieces: vec![bytes] }
    }
}
