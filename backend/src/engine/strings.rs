//! Converts `BYTES` tensors from and to the strings of engines.

use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::Tensor;

use crate::Error;

/// The elements of a `BYTES` tensor; ONNX strings are UTF-8.
pub fn unpack(tensor: &Tensor) -> Result<Vec<String>, Error> {
    let text = |string| std::str::from_utf8(string).map(str::to_owned);
    let texts = tensor.strings().map(text).collect::<Result<_, _>>();
    texts.map_err(|error| Error::Run { message: format!("a string is not UTF-8: {error}") })
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
