//! Element types of tensors in ONNX files.

use std::fmt;

pub use super::proto::DataType;

impl DataType {
    /// Bits of one element; `None` for strings, whose elements have their own length, and for the undefined type.
    pub const fn bits(self) -> Option<usize> {
        match self {
            DataType::Undefined | DataType::String => None,
            DataType::Uint2 | DataType::Int2 => Some(2),
            DataType::Uint4 | DataType::Int4 | DataType::Float4e2m1 => Some(4),
            DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(8),
            DataType::Float8e4m3fn | DataType::Float8e4m3fnuz | DataType::Float8e5m2 => Some(8),
            DataType::Float8e5m2fnuz | DataType::Float8e8m0 => Some(8),
            DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::Bfloat16 => Some(16),
            DataType::Uint32 | DataType::Int32 | DataType::Float => Some(32),
            DataType::Uint64 | DataType::Int64 | DataType::Double | DataType::Complex64 => Some(64),
            DataType::Complex128 => Some(128),
        }
    }

    /// Bytes of `elements` elements when stored raw (elements smaller than a byte are packed).
    pub fn size_of(self, elements: usize) -> Option<usize> {
        Some(elements.checked_mul(self.bits()?)?.div_ceil(8))
    }

    /// Whether gradients can flow through it, as for parameters.
    pub const fn is_float(self) -> bool {
        matches!(self, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
    }

    /// Whether it is an integer type of at least eight bits, or boolean.
    pub const fn is_integer(self) -> bool {
        use DataType::*;
        matches!(self, Bool | Uint8 | Uint16 | Uint32 | Uint64 | Int8 | Int16 | Int32 | Int64)
    }

    /// The serving protocol's type; `None` if the protocol has none.
    pub const fn to_protocol(self) -> Option<parm_protocol::DataType> {
        use parm_protocol::DataType as Wire;
        Some(match self {
            DataType::Bool => Wire::Bool,
            DataType::Uint8 => Wire::Uint8,
            DataType::Uint16 => Wire::Uint16,
            DataType::Uint32 => Wire::Uint32,
            DataType::Uint64 => Wire::Uint64,
            DataType::Int8 => Wire::Int8,
            DataType::Int16 => Wire::Int16,
            DataType::Int32 => Wire::Int32,
            DataType::Int64 => Wire::Int64,
            DataType::Float16 => Wire::Fp16,
            DataType::Bfloat16 => Wire::Bf16,
            DataType::Float => Wire::Fp32,
            DataType::Double => Wire::Fp64,
            DataType::String => Wire::Bytes,
            _ => return None,
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_protocol() {
            Some(wire) => wire.fmt(f),
            None => f.write_str(&format!("{self:?}").to_uppercase()),
        }
    }
}
