//! Numbers, text and parameters as bytes: LEB128 numbers, length-prefixed text.

use bytes::{BufMut, BytesMut};
use parm_protocol::bounds::Parts;
use parm_protocol::{Error, Parameter, Parameters};
use prost::encoding::{decode_varint, encode_varint};

pub(super) fn put_number(out: &mut BytesMut, number: u64) {
    encode_varint(number, out);
}

pub(super) fn put_text(out: &mut BytesMut, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Optional text: its length plus one, or zero.
pub(super) fn put_maybe_text(out: &mut BytesMut, text: Option<&str>) {
    match text {
        None => out.put_u8(0),
        Some(text) => {
            put_number(out, text.len() as u64 + 1);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Parameters, and an additional one of text.
pub(super) fn put_parameters_and(out: &mut BytesMut, parameters: &Parameters, (name, text): (&str, &str)) {
    put_number(out, parameters.len() as u64 + 1);
    put_each(out, parameters);
    put_text(out, name);
    out.put_u8(5);
    put_text(out, text);
}

pub(super) fn put_parameters(out: &mut BytesMut, parameters: &Parameters) {
    put_number(out, parameters.len() as u64);
    put_each(out, parameters);
}

fn put_each(out: &mut BytesMut, parameters: &Parameters) {
    for (name, value) in parameters {
        put_text(out, name);
        match value {
            Parameter::Bool(false) => out.put_u8(0),
            Parameter::Bool(true) => out.put_u8(1),
            Parameter::Int64(value) => {
                out.put_u8(2);
                out.put_i64_le(*value);
            }
            Parameter::Uint64(value) => {
                out.put_u8(3);
                out.put_u64_le(*value);
            }
            Parameter::Double(value) => {
                out.put_u8(4);
                out.put_f64_le(*value);
            }
            Parameter::String(text) => {
                out.put_u8(5);
                put_text(out, text);
            }
        }
    }
}

/// Reads the output of the functions above. For any input it neither panics nor trusts a length that exceeds the
/// remaining bytes.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    parts: Parts,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, parts: Parts::default() }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        decode_varint(&mut self.rest)
            .map_err(|error| Error::malformed(format!("a number in the frame is invalid: {error}")))
    }

    /// A count of items that follow, each of at least one byte.
    pub(super) fn count(&mut self) -> Result<usize, Error> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(Error::malformed("the frame is shorter than it announces")),
        }
    }

    pub(super) fn size(&mut self) -> Result<usize, Error> {
        usize::try_from(self.number()?)
            .map_err(|_| Error::malformed("a size in the frame cannot be addressed"))
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        let length = self.count()?;
        self.parts.text(length)?;
        self.take_text(length)
    }

    /// Text that only a server sends: limited by its frame.
    pub(super) fn words(&mut self) -> Result<String, Error> {
        let length = self.count()?;
        self.take_text(length)
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<String>, Error> {
        match self.size()?.checked_sub(1) {
            None => Ok(None),
            Some(length) => {
                self.parts.text(length)?;
                self.take_text(length).map(Some)
            }
        }
    }

    pub(super) fn parameters(&mut self) -> Result<Parameters, Error> {
        let count = self.count()?;
        self.parts.parameters(count)?;
        let mut parameters = Parameters::new();
        for _ in 0..count {
            let name = self.text()?;
            let value = match self.byte()? {
                0 => Parameter::Bool(false),
                1 => Parameter::Bool(true),
                2 => Parameter::Int64(i64::from_le_bytes(*self.array()?)),
                3 => Parameter::Uint64(u64::from_le_bytes(*self.array()?)),
                4 => Parameter::Double(f64::from_le_bytes(*self.array()?)),
                5 => Parameter::String(self.text()?),
                other => {
                    return Err(Error::malformed(format!("unknown kind of parameter {other} in the frame")));
                }
            };
            parameters.insert(name, value);
        }
        Ok(parameters)
    }

    /// Rejects leftover bytes.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Error::malformed("bytes left over in the frame's head"))
        }
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Error> {
        let (array, rest) =
            self.rest.split_first_chunk().ok_or_else(|| Error::malformed("the frame is too short"))?;
        self.rest = rest;
        Ok(array)
    }

    fn take_text(&mut self, length: usize) -> Result<String, Error> {
        let (text, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| Error::malformed("the frame is too short"))?;
        self.rest = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Error::malformed("text in the frame is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_beyond_the_remaining_bytes_is_malformed() {
        let mut out = BytesMut::new();
        put_number(&mut out, u64::MAX);
        assert!(Cursor::new(&out).count().is_err());
        assert!(Cursor::new(&out).maybe_text().is_err());
    }
}
