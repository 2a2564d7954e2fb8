//! Elements converted to numbers.

use parm_protocol::{DataType, Tensor};

/// The elements of a tensor as numbers; none for strings.
pub fn numbers(tensor: &Tensor) -> Option<Box<dyn Iterator<Item = f64> + '_>> {
    macro_rules! read {
        ($kind:ty) => {
            Box::new(tensor.data().chunks_exact(size_of::<$kind>()).map(|bytes| {
                <$kind>::from_le_bytes(bytes.try_into().unwrap_or_else(|_| unreachable!("chunks are exact")))
                    as f64
            }))
        };
    }
    Some(match tensor.datatype() {
        DataType::Bool | DataType::Uint8 => read!(u8),
        DataType::Uint16 => read!(u16),
        DataType::Uint32 => read!(u32),
        DataType::Uint64 => read!(u64),
        DataType::Int8 => read!(i8),
        DataType::Int16 => read!(i16),
        DataType::Int32 => read!(i32),
        DataType::Int64 => read!(i64),
        DataType::Fp32 => read!(f32),
        DataType::Fp64 => read!(f64),
        DataType::Fp16 | DataType::Bf16 | DataType::Bytes => return None,
    })
}
