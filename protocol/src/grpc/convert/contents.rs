//! Typed contents into raw bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::malformed;
use crate::grpc::inference::InferTensorContents;
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
    if let Some((stray, _)) =
        filled(&contents).into_iter().find(|(other, count)| *count > 0 && *other != field)
    {
        return Err(malformed(format!("tensor '{name}' is {datatype} but fills {stray}: use {field}")));
    }
    let range = |value: String| malformed(format!("tensor '{name}': {value} is not a {datatype} value"));
    let signed = &contents.int_contents;
    let unsigned = &contents.uint_contents;
    match datatype {
        DataType::Bool => Ok(contents.bool_contents.iter().map(|&value| u8::from(value)).collect()),
        DataType::Int8 => narrow(signed, range, |value| i8::try_from(value).ok().map(i8::to_le_bytes)),
        DataType::Int16 => narrow(signed, range, |value| i16::try_from(value).ok().map(i16::to_le_bytes)),
        DataType::Int32 => narrow(signed, range, |value| Some(value.to_le_bytes())),
        DataType::Int64 => narrow(&contents.int64_contents, range, |value| Some(value.to_le_bytes())),
        DataType::Uint8 => narrow(unsigned, range, |value| u8::try_from(value).ok().map(u8::to_le_bytes)),
        DataType::Uint16 => narrow(unsigned, range, |value| u16::try_from(value).ok().map(u16::to_le_bytes)),
        DataType::Uint32 => narrow(unsigned, range, |value| Some(value.to_le_bytes())),
        DataType::Uint64 => narrow(&contents.uint64_contents, range, |value| Some(value.to_le_bytes())),
        DataType::Fp32 => narrow(&contents.fp32_contents, range, |value| Some(value.to_le_bytes())),
        DataType::Fp64 => narrow(&contents.fp64_contents, range, |value| Some(value.to_le_bytes())),
        DataType::Bytes => strings(&contents.bytes_contents),
        DataType::Fp16 | DataType::Bf16 => Ok(Bytes::new()),
    }
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

fn narrow<T: Copy + ToString, const N: usize>(
    values: &[T],
    range: impl Fn(String) -> Error,
    convert: impl Fn(T) -> Option<[u8; N]>,
) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::with_capacity(values.len() * N);
    for &value in values {
        bytes.put_slice(&convert(value).ok_or_else(|| range(value.to_string()))?);
    }
    Ok(bytes.freeze())
}

fn strings(values: &[Bytes]) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::with_capacity(values.iter().map(|value| 4 + value.len()).sum());
    for value in values {
        let length = u32::try_from(value.len()).map_err(|_| malformed("a string has at most 4 GiB"))?;
        bytes.put_u32_le(length);
        bytes.put_slice(value);
    }
    Ok(bytes.freeze())
}
