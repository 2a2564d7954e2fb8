//! Tensor values as JSON: read flat or nested into little-endian bytes, written flat.
//!
//! JSON has no NaN: a `null` among floating-point values stands for it in both directions. Infinities, which JSON
//! cannot express either, are written as `null` too. Clients that need every bit send binary data.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeSeq, Serializer};

use crate::tensor::strings_in;
use crate::{DataType, Tensor};

/// Bytes to allocate for `json`: those of the shape, unless the shape lies. A number takes at least two characters and
/// a string three, so the text limits both.
pub(super) fn room(json: &str, datatype: DataType, shape: &[usize]) -> usize {
    let wanted = shape.iter().fold(1usize, |product, &dim| product.saturating_mul(dim));
    match datatype.size() {
        Some(size) => wanted.min(json.len() / 2 + 1) * size,
        // Three characters around a string become its four bytes of length.
        None => json.len() + wanted.min(json.len() / 3 + 1),
    }
}

/// Bytes that reading needs temporarily: a string with escapes is assembled before it is copied.
pub(super) fn beside(json: &str, datatype: DataType) -> usize {
    match datatype {
        DataType::Bytes if json.contains('\\') => json.len(),
        _ => 0,
    }
}

/// Reads `json`, flat or nested as `shape` says, into the bytes of a tensor.
pub(super) fn read(json: &str, datatype: DataType, shape: &[usize]) -> Result<Bytes, String> {
    let wanted = shape
        .iter()
        .try_fold(1usize, |product, &dim| product.checked_mul(dim))
        .ok_or_else(|| format!("shape {shape:?} describes more elements than can be addressed"))?;
    let out = BytesMut::with_capacity(room(json, datatype, shape));
    let mut sink = Sink { datatype, shape, wanted, found: 0, leaves: None, out };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Level { depth: 0, sink: &mut sink }.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    if sink.found != wanted {
        return Err(format!("{} values, but shape {shape:?} has {wanted}", sink.found));
    }
    Ok(sink.out.freeze())
}

struct Sink<'a> {
    datatype: DataType,
    shape: &'a [usize],
    wanted: usize,
    found: usize,
    /// The depth of values: 1 if flat, the rank if nested.
    leaves: Option<usize>,
    out: BytesMut,
}

impl Sink<'_> {
    fn put(&mut self, depth: usize, scalar: Scalar<'_>) -> Result<(), String> {
        if *self.leaves.get_or_insert(depth) != depth || (depth != 1 && depth != self.shape.len()) {
            return Err(format!(
                "ragged nesting: give a flat list, or lists nested as shape {:?}",
                self.shape
            ));
        }
        if self.found == self.wanted {
            return Err(format!("more values than the {} that shape {:?} has", self.wanted, self.shape));
        }
        self.found += 1;
        put(&mut self.out, self.datatype, scalar)
    }

    /// Checks a list at `depth` that ended after `count` elements: nested lists must be as long as their dimension.
    fn end(&self, depth: usize, count: usize) -> Result<(), String> {
        let flat = depth == 0 && self.leaves.is_none_or(|leaves| leaves == 1);
        match self.shape.get(depth) {
            Some(&dim) if !flat && dim != count => {
                Err(format!("a list of {count}, but shape {:?} has {dim}", self.shape))
            }
            _ => Ok(()),
        }
    }
}

/// A value or list nested in `depth` lists.
struct Level<'a, 'b> {
    depth: usize,
    sink: &'a mut Sink<'b>,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! scalars {
    ($($visit:ident($value:ty) => $kind:ident),*) => {$(
        fn $visit<E: serde::de::Error>(self, value: $value) -> Result<(), E> {
            self.sink.put(self.depth, Scalar::$kind(value)).map_err(E::custom)
        }
    )*};
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values in lists", self.sink.datatype)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Level { depth, sink } = self;
        if depth >= sink.shape.len().max(1) {
            return Err(A::Error::custom(format!("lists nested deeper than shape {:?}", sink.shape)));
        }
        let mut count = 0;
        while seq.next_element_seed(Level { depth: depth + 1, sink: &mut *sink })?.is_some() {
            count += 1;
        }
        sink.end(depth, count).map_err(A::Error::custom)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.sink.put(self.depth, Scalar::Null).map_err(E::custom)
    }

    scalars!(visit_bool(bool) => Bool, visit_u64(u64) => Unsigned, visit_i64(i64) => Signed);
    scalars!(visit_f64(f64) => Float, visit_str(&str) => Text);
}

/// The largest float up to which floats have all whole numbers.
const LARGEST_EXACT: f64 = (1u64 << 53) as f64;

/// A value of JSON, or of a typed list of gRPC.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

/// Appends `scalar` as one element of `datatype`.
pub(crate) fn put(out: &mut BytesMut, datatype: DataType, scalar: Scalar<'_>) -> Result<(), String> {
    let fits = match datatype {
        DataType::Bool => truth(scalar).map(|value| out.put_u8(value.into())),
        DataType::Uint8 => whole::<u8>(scalar).map(|value| out.put_u8(value)),
        DataType::Uint16 => whole::<u16>(scalar).map(|value| out.put_u16_le(value)),
        DataType::Uint32 => whole::<u32>(scalar).map(|value| out.put_u32_le(value)),
        DataType::Uint64 => whole::<u64>(scalar).map(|value| out.put_u64_le(value)),
        DataType::Int8 => whole::<i8>(scalar).map(|value| out.put_i8(value)),
        DataType::Int16 => whole::<i16>(scalar).map(|value| out.put_i16_le(value)),
        DataType::Int32 => whole::<i32>(scalar).map(|value| out.put_i32_le(value)),
        DataType::Int64 => whole::<i64>(scalar).map(|value| out.put_i64_le(value)),
        DataType::Fp16 => real(scalar, |value| f16::from_f64(value).is_finite())
            .map(|value| out.put_slice(&f16::from_f64(value).to_le_bytes())),
        DataType::Bf16 => real(scalar, |value| bf16::from_f64(value).is_finite())
            .map(|value| out.put_slice(&bf16::from_f64(value).to_le_bytes())),
        DataType::Fp32 => {
            real(scalar, |value| (value as f32).is_finite()).map(|value| out.put_f32_le(value as f32))
        }
        DataType::Fp64 => real(scalar, f64::is_finite).map(|value| out.put_f64_le(value)),
        DataType::Bytes => text(scalar).map(|value| {
            out.put_u32_le(value.len() as u32);
            out.put_slice(value.as_bytes());
        }),
    };
    fits.ok_or_else(|| format!("{} is not {} {datatype} value", describe(scalar), datatype.article()))
}

fn truth(scalar: Scalar<'_>) -> Option<bool> {
    match scalar {
        Scalar::Bool(value) => Some(value),
        Scalar::Unsigned(value @ 0..=1) => Some(value == 1),
        _ => None,
    }
}

fn whole<T: TryFrom<u64> + TryFrom<i64>>(scalar: Scalar<'_>) -> Option<T> {
    match scalar {
        Scalar::Unsigned(value) => T::try_from(value).ok(),
        Scalar::Signed(value) => T::try_from(value).ok(),
        // Many clients write every number as a float. Beyond this limit a float may stand for several whole numbers.
        Scalar::Float(value) if value.fract() == 0.0 && value.abs() <= LARGEST_EXACT => {
            T::try_from(value as i64).ok()
        }
        _ => None,
    }
}

fn real(scalar: Scalar<'_>, fits: impl Fn(f64) -> bool) -> Option<f64> {
    let value = match scalar {
        Scalar::Null => return Some(f64::NAN),
        Scalar::Unsigned(value) => value as f64,
        Scalar::Signed(value) => value as f64,
        Scalar::Float(value) => value,
        Scalar::Bool(_) | Scalar::Text(_) => return None,
    };
    fits(value).then_some(value)
}

fn text(scalar: Scalar<'_>) -> Option<&str> {
    match scalar {
        Scalar::Text(value) => u32::try_from(value.len()).is_ok().then_some(value),
        _ => None,
    }
}

fn describe(scalar: Scalar<'_>) -> String {
    match scalar {
        Scalar::Null => "null".into(),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Unsigned(value) => value.to_string(),
        Scalar::Signed(value) => value.to_string(),
        Scalar::Float(value) => format!("{value:?}"),
        Scalar::Text(value) => format!("the string '{}'", value.chars().take(40).collect::<String>()),
    }
}

/// A tensor's values, to be written as a list.
pub(super) struct Values<'a>(pub(super) &'a Tensor);

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

fn strings<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(None)?;
    for bytes in strings_in(data) {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| S::Error::custom("JSON cannot hold bytes that are not UTF-8: use binary data"))?;
        list.serialize_element(text)?;
    }
    list.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(json: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let bytes = read(json, DataType::Fp32, shape)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
    }

    #[test]
    fn flat_and_nested_lists_mean_the_same() {
        let flat = floats("[1, 2.5, -3, 4e1]", &[2, 2]).unwrap();
        assert_eq!(flat, [1.0, 2.5, -3.0, 40.0]);
        assert_eq!(floats("[[1, 2.5], [-3, 4e1]]", &[2, 2]).unwrap(), flat);
        assert_eq!(floats("[[[7]]]", &[1, 1, 1]).unwrap(), [7.0]);
        assert_eq!(floats("7", &[]).unwrap(), [7.0]);
        assert_eq!(floats("[]", &[0]).unwrap(), [0.0; 0]);
        assert_eq!(floats("[[], []]", &[2, 0]).unwrap(), [0.0; 0]);
        assert!(floats("[null]", &[1]).unwrap()[0].is_nan());
    }

    #[test]
    fn list_that_does_not_fit_the_shape_names_the_mismatch() {
        for (json, shape, part) in [
            ("[[1, 2], [3]]", &[2, 2][..], "a list of 1, but shape [2, 2] has 2"),
            ("[[1, 2], 3, 4]", &[2, 2], "ragged nesting"),
            ("[1, [2]]", &[2, 1], "ragged nesting"),
            ("[1, 2, 3]", &[2, 2], "3 values, but shape [2, 2] has 4"),
            ("[1, 2, 3]", &[2], "more values than the 2"),
            ("[[1, 2]]", &[2], "nested deeper"),
            ("[[1], [2]]", &[1, 2], "a list of 1, but"),
            ("[{}]", &[1], "invalid type: map"),
            ("[1e39]", &[1], "not an FP32 value"),
            ("[1e999]", &[1], "number out of range"),
            ("[\"1\"]", &[1], "the string '1' is not an FP32 value"),
            ("[1]", &[usize::MAX, 2], "more elements than can be addressed"),
            ("[[1, 2, 3]]", &[2, 2, 2], "ragged nesting"),
            ("[]", &[1 << 60], "0 values"),
        ] {
            let error = floats(json, shape).unwrap_err();
            assert!(error.contains(part), "{json} as {shape:?}: {error}");
        }
    }

    #[test]
    fn whole_float_is_a_value_of_whole_numbers() {
        let bytes = read("[1.0, -2e0, 9007199254740992.0]", DataType::Int64, &[3]).unwrap();
        let values: Vec<_> =
            bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        assert_eq!(values, [1, -2, 1 << 53]);
        for (json, datatype, part) in [
            ("[1.5]", DataType::Int64, "1.5 is not an INT64 value"),
            ("[1e300]", DataType::Int64, "1e300 is not an INT64 value"),
            ("[256.0]", DataType::Uint8, "256.0 is not a UINT8 value"),
            ("[-1.0]", DataType::Uint64, "-1.0 is not a UINT64 value"),
        ] {
            let error = read(json, datatype, &[1]).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn values_outside_a_datatype_are_rejected() {
        for (datatype, good, bad) in [
            (DataType::Bool, "[true, false, 1, 0]", "[2, 0, 0, 0]"),
            (DataType::Uint8, "[0, 255, 1, 2]", "[256, 0, 0, 0]"),
            (DataType::Uint64, "[18446744073709551615, 0, 1, 2]", "[-1, 0, 0, 0]"),
            (DataType::Int8, "[-128, 127, 0, 1]", "[128, 0, 0, 0]"),
            (DataType::Int64, "[-9223372036854775808, 1, 2, 3]", "[9223372036854775808, 0, 0, 0]"),
            (DataType::Int32, "[1, 2, 3, 4]", "[1.5, 0, 0, 0]"),
            (DataType::Fp16, "[65504, -1, 0.5, null]", "[70000, 0, 0, 0]"),
            (DataType::Bf16, "[1e38, -1, 0.5, 2]", "[1e39, 0, 0, 0]"),
            (DataType::Fp64, "[1e308, 1, 2, 3]", "[true, 0, 0, 0]"),
            (DataType::Bytes, r#"["a", "", "\u00e9", "d"]"#, r#"["a", 1, "b", "c"]"#),
        ] {
            assert!(read(good, datatype, &[4]).is_ok(), "{datatype} {good}");
            assert!(read(bad, datatype, &[4]).is_err(), "{datatype} {bad}");
        }
    }
}
