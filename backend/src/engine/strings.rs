//! Converts `BYTES` tensors from and to the strings of engines.

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::Tensor;

use crate::Error;

/// The elements of a `BYTES` tensor; ONNX strings are UTF-8.
pub fn unpack(tensor: &Tensor) -> Result<Vec<String>, Error> {
    let mut rest: &[u8] = tensor.data();
    let mut texts = Vec::with_capacity(tensor.len());
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (text, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
        let text = std::str::from_utf8(text)
            .map_err(|error| Error::Run { message: format!("a string is not UTF-8: {error}") })?;
        texts.push(text.into());
        rest = tail;
    }
    Ok(texts)
}

/// Strings as the data of a `BYTES` tensor.
pub(super) fn pack(texts: &[String]) -> Bytes {
    let mut data = BytesMut::with_capacity(texts.iter().map(|text| text.len() + 4).sum());
    for text in texts {
        data.put_u32_le(u32::try_from(text.len()).unwrap_or(u32::MAX));
        data.put_slice(text.as_bytes());
    }
    data.freeze()
}

#[cfg(test)]
mod tests {
    use parm_protocol::DataType;

    use super::*;

    #[test]
    fn strings_survive_a_round_trip() {
        let texts = ["", "grün", "b"].map(String::from);
        let tensor = Tensor::new(DataType::Bytes, [3].as_slice(), pack(&texts)).unwrap();
        assert_eq!(unpack(&tensor).unwrap(), texts);
        let broken = Bytes::from_static(b"\x01\0\0\0\xff");
        let tensor = Tensor::new(DataType::Bytes, [1].as_slice(), broken).unwrap();
        assert!(matches!(unpack(&tensor), Err(Error::Run { .. })));
    }
}
