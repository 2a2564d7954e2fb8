//! Conversion of typed contents into raw bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::inference::InferTensorContents;
use crate::rest::{Scalar, put};
use crate::{DataType, Error};

/// The raw bytes of typed contents; only the field that belongs to the datatype may be filled.
pub(super) fn to_bytes(
    name: &str,
    datatype: DataType,
    contents: InferTensorContents,
) -> Result<Bytes, Error> {
    let field = match datatype {
        DataType::Bool => "bool_contents",
        DataType::Int8 | DataType::Int16 | DataType::Int32 => "int_contents",
        DataType::Int64 => "int64_contents",
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => "uint_contents",
        DataType::Uint64 => "uint64_contents",
        DataType::Fp32 => "fp32_contents",
        DataType::Fp64 => "fp64_contents",
        DataType::Bytes => "bytes_contents",
        DataType::Fp16 | DataType::Bf16 => "raw contents only",
    };
    let filled = filled(&contents);
    if let Some((stray, _)) = filled.into_iter().find(|(other, count)| *count > 0 && *other != field) {
        return Err(Error::malformed(format!(
            "tensor '{name}' is {datatype} but fills {stray}: use {field}"
        )));
    }
    if datatype == DataType::Bytes {
        return strings(&contents.bytes_contents);
    }
    let count: usize = filled.into_iter().map(|(_, count)| count).sum();
    let mut bytes = BytesMut::with_capacity(count * datatype.size().unwrap_or(1));
    let signed = contents.int_contents.into_iter().map(i64::from).chain(contents.int64_contents);
    let unsigned = contents.uint_contents.into_iter().map(u64::from).chain(contents.uint64_contents);
    let values = contents.bool_contents.into_iter().map(Scalar::Bool);
    // Only one of the lists has values.
    for value in values.chain(signed.map(Scalar::Signed)).chain(unsigned.map(Scalar::Unsigned)) {
        put(&mut bytes, datatype, value)
            .map_err(|problem| Error::malformed(format!("tensor '{name}': {problem}")))?;
    }
    // Unlike in JSON, these may be infinite.
    contents.fp32_contents.iter().for_each(|value| bytes.put_f32_le(*value));
    contents.fp64_contents.iter().for_each(|value| bytes.put_f64_le(*value));
    Ok(bytes.freeze())
}

fn filled(contents: &InferTensorContents) -> [(&'static str, usize); 8] {
    [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ]
}

fn strings(values: &[Bytes]) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::with_capacity(values.iter().map(|value| 4 + value.len()).sum());
    for value in values {
        let length =
            u32::try_from(value.len()).map_err(|_| Error::malformed("a string has at most 4 GiB"))?;
        bytes.put_u32_le(length);
        bytes.put_slice(value);
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> InferTensorContents {
        InferTensorContents::default()
    }

    fn signed(values: &[i32]) -> InferTensorContents {
        InferTensorContents { int_contents: values.to_vec(), ..empty() }
    }

    fn unsigned(values: &[u32]) -> InferTensorContents {
        InferTensorContents { uint_contents: values.to_vec(), ..empty() }
    }

    /// Each datatype with the contents that belong to it, and the bytes these mean.
    fn good() -> Vec<(DataType, InferTensorContents, Vec<u8>)> {
        let strings = InferTensorContents { bytes_contents: vec!["ab".into(), "".into()], ..empty() };
        vec![
            (DataType::Bool, InferTensorContents { bool_contents: vec![true, false], ..empty() }, vec![1, 0]),
            (DataType::Int8, signed(&[-128, 127]), vec![0x80, 0x7f]),
            (DataType::Int16, signed(&[-32768, 32767]), vec![0, 0x80, 0xff, 0x7f]),
            (DataType::Int32, signed(&[i32::MIN]), vec![0, 0, 0, 0x80]),
            (
                DataType::Int64,
                InferTensorContents { int64_contents: vec![-2], ..empty() },
                vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
            (DataType::Uint8, unsigned(&[0, 255]), vec![0, 255]),
            (DataType::Uint16, unsigned(&[65535, 1]), vec![0xff, 0xff, 1, 0]),
            (DataType::Uint32, unsigned(&[u32::MAX]), vec![0xff; 4]),
            (
                DataType::Uint64,
                InferTensorContents { uint64_contents: vec![u64::MAX], ..empty() },
                vec![0xff; 8],
            ),
            (
                DataType::Fp32,
                InferTensorContents { fp32_contents: vec![-2.0], ..empty() },
                vec![0, 0, 0, 0xc0],
            ),
            (
                DataType::Fp64,
                InferTensorContents { fp64_contents: vec![-2.0], ..empty() },
                vec![0, 0, 0, 0, 0, 0, 0, 0xc0],
            ),
            (DataType::Bytes, strings, vec![2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]),
        ]
    }

    #[test]
    fn typed_contents_of_every_datatype_become_little_endian_bytes() {
        for (datatype, contents, bytes) in good() {
            assert_eq!(to_bytes("x", datatype, contents), Ok(Bytes::from(bytes)), "{datatype}");
        }
        let missing: Vec<_> = DataType::ALL
            .into_iter()
            .filter(|datatype| !good().iter().any(|(listed, ..)| listed == datatype))
            .collect();
        assert_eq!(missing, [DataType::Fp16, DataType::Bf16], "the two that only raw contents can carry");
    }

    #[test]
    fn contents_of_another_datatype_are_rejected() {
        for datatype in DataType::ALL {
            for (other, contents, _) in good() {
                let field =
                    |of| good().into_iter().find(|(listed, ..)| *listed == of).map(|(_, it, _)| name(&it));
                if field(datatype) == field(other) {
                    continue;
                }
                let error = to_bytes("x", datatype, contents.clone()).unwrap_err().to_string();
                let part = format!("tensor 'x' is {datatype} but fills {}: use ", name(&contents));
                assert!(error.contains(&part), "{error} lacks {part}");
            }
        }
        let both = InferTensorContents { int_contents: vec![1], ..unsigned(&[1]) };
        assert!(to_bytes("x", DataType::Int8, both).is_err());
    }

    fn name(contents: &InferTensorContents) -> &'static str {
        filled(contents).into_iter().find(|(_, count)| *count > 0).map_or("none", |(name, _)| name)
    }

    #[test]
    fn values_outside_a_narrow_datatype_are_rejected() {
        for (datatype, contents, problem) in [
            (DataType::Int8, signed(&[1, 128]), "128 is not an INT8 value"),
            (DataType::Uint16, unsigned(&[65536]), "65536 is not a UINT16 value"),
        ] {
            let message = format!("tensor 'x': {problem}");
            assert_eq!(to_bytes("x", datatype, contents), Err(Error::Malformed { message }));
        }
    }
}
