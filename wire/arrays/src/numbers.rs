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
    let datatype = tensor.datatype();
    Some(match datatype {
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
        DataType::Fp16 | DataType::Bf16 => {
            Box::new(tensor.data().chunks_exact(2).map(move |bytes| datatype.read_half([bytes[0], bytes[1]])))
        }
        DataType::Bytes => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read() {
        for datatype in [DataType::Fp16, DataType::Bf16] {
            let bytes: Vec<u8> = [1.5, -0.25]
                .into_iter()
                .flat_map(|number| datatype.half_precision(number).unwrap())
                .collect();
            let tensor = Tensor::new(datatype, vec![2], bytes.into()).unwrap();
            assert_eq!(numbers(&tensor).unwrap().collect::<Vec<_>>(), [1.5, -0.25], "{datatype}");
        }
    }
}
