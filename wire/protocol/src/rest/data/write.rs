//! Tensor values as a flat JSON list.

use half::{bf16, f16};
use serde::ser::{Error as _, Serialize, SerializeSeq, Serializer};

use crate::{DataType, Tensor};

/// A tensor's values, to be written as a list.
pub(in crate::rest) struct Values<'a>(pub(in crate::rest) &'a Tensor);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = &self.0.data()[..];
        match self.0.datatype() {
            DataType::Bool => serializer.collect_seq(data.iter().map(|&byte| byte != 0)),
            DataType::Uint8 => serializer.collect_seq(data),
            DataType::Uint16 => serializer.collect_seq(elements(data, u16::from_le_bytes)),
            DataType::Uint32 => serializer.collect_seq(elements(data, u32::from_le_bytes)),
            DataType::Uint64 => serializer.collect_seq(elements(data, u64::from_le_bytes)),
            DataType::Int8 => serializer.collect_seq(elements(data, i8::from_le_bytes)),
            DataType::Int16 => serializer.collect_seq(elements(data, i16::from_le_bytes)),
            DataType::Int32 => serializer.collect_seq(elements(data, i32::from_le_bytes)),
            DataType::Int64 => serializer.collect_seq(elements(data, i64::from_le_bytes)),
            DataType::Fp16 => serializer.collect_seq(elements(data, |b| f16::from_le_bytes(b).to_f32())),
            DataType::Bf16 => serializer.collect_seq(elements(data, |b| bf16::from_le_bytes(b).to_f32())),
            DataType::Fp32 => serializer.collect_seq(elements(data, f32::from_le_bytes)),
            DataType::Fp64 => serializer.collect_seq(elements(data, f64::from_le_bytes)),
            DataType::Bytes => strings(data, serializer),
        }
    }
}

fn elements<'a, const N: usize, T>(
    data: &'a [u8],
    read: impl Fn([u8; N]) -> T + 'a,
) -> impl Iterator<Item = T> {
    data.as_chunks::<N>().0.iter().map(move |bytes| read(*bytes))
}

fn strings<S: Serializer>(mut data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(None)?;
    while let Some((length, rest)) = data.split_first_chunk::<4>() {
        let (bytes, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let text = std::str::from_utf8(bytes)
            .map_err(|_| S::Error::custom("JSON cannot hold bytes that are not UTF-8: use binary data"))?;
        list.serialize_element(text)?;
        data = rest;
    }
    list.end()
}
