//! Converts `BYTES` tensors from and to the strings of engines.

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::Tensor;
use parm_protocol::texts::ids_of;

use crate::Error;

/// The elements of a `BYTES` tensor; ONNX strings are UTF-8.
pub(super) fn unpack(tensor: &Tensor) -> Result<Vec<String>, Error> {
    tensor.strings().map(text_of).collect()
}

/// The same without rows of token ids.
pub fn texts_of(tensor: &Tensor) -> Result<Vec<String>, Error> {
    tensor.strings().filter(|string| ids_of(string).is_none()).map(text_of).collect()
}

/// One of them.
pub(super) fn text_of(string: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(string);
    text.map(str::to_owned).map_err(|error| Error::Run { message: format!("a string is not UTF-8: {error}") })
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
        let ids = Bytes::from_static(b"\x05\0\0\0\xff\x07\0\0\0\x01\0\0\0a");
        let tensor = Tensor::new(DataType::Bytes, [2].as_slice(), ids).unwrap();
        assert_eq!(texts_of(&tensor).unwrap(), ["a"]);
        let broken = Bytes::from_static(b"\x01\0\0\0\xff");
        let tensor = Tensor::new(DataType::Bytes, [1].as_slice(), broken).unwrap();
        assert!(matches!(unpack(&tensor), Err(Error::Run { .. })));
    }
}
