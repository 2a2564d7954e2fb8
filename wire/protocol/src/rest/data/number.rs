//! Conversion of one JSON value into the little-endian bytes of one element, with a range check.

use bytes::{BufMut, BytesMut};
use half::{bf16, f16};

use crate::DataType;

/// The largest float up to which floats have all whole numbers.
const LARGEST_EXACT: f64 = (1u64 << 53) as f64;

/// A JSON value that is not a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

/// Appends `scalar` as one element of `datatype`.
pub(super) fn put(out: &mut BytesMut, datatype: DataType, scalar: Scalar<'_>) -> Result<(), String> {
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
