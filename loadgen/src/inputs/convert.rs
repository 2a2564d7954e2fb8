//! Converts elements of one datatype to another by the numbers that they represent.

use bytes::Bytes;
use parm_arrays::{Array, Format, numbers};
use parm_protocol::DataType;

/// Converts the array's elements to `datatype`, or says why that is impossible. Bytes of an idx file (pixels) become
/// floats from 0 to 1.
pub(super) fn elements(array: &Array, datatype: DataType) -> Result<Bytes, String> {
    let Array { tensor, format } = array;
    if tensor.datatype() == datatype {
        return Ok(tensor.data().clone());
    }
    let from = tensor.datatype();
    let refused = || format!("its elements are {from}, which do not convert to the model's {datatype}");
    let numbers = numbers(tensor).ok_or_else(refused)?;
    let scale = match (format, from, datatype) {
        (Format::Idx, DataType::Uint8, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64) => {
            1.0 / 255.0
        }
        _ => 1.0,
    };
    let mut data = Vec::with_capacity(tensor.len() * datatype.size().unwrap_or(1));
    for number in numbers {
        if !write(&mut data, number * scale, datatype) {
            return Err(format!("its element {number} is not a valid {datatype}"));
        }
    }
    // A datatype that `write` does not know was rejected above, so every element was written.
    Ok(Bytes::from(data))
}

/// Appends a number; returns false if the datatype cannot hold it.
pub(super) fn write(data: &mut Vec<u8>, number: f64, datatype: DataType) -> bool {
    macro_rules! whole {
        ($kind:ty) => {{
            let value = number as $kind;
            data.extend_from_slice(&value.to_le_bytes());
            value as f64 == number
        }};
    }
    match datatype {
        DataType::Fp16 | DataType::Bf16 => match datatype.half_precision(number) {
            Some(bytes) => data.extend_from_slice(&bytes),
            None => return false,
        },
        DataType::Fp32 => data.extend_from_slice(&(number as f32).to_le_bytes()),
        DataType::Fp64 => data.extend_from_slice(&number.to_le_bytes()),
        DataType::Uint8 => return whole!(u8),
        DataType::Uint16 => return whole!(u16),
        DataType::Uint32 => return whole!(u32),
        DataType::Uint64 => return whole!(u64),
        DataType::Int8 => return whole!(i8),
        DataType::Int16 => return whole!(i16),
        DataType::Int32 => return whole!(i32),
        DataType::Int64 => return whole!(i64),
        DataType::Bool | DataType::Bytes => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use parm_protocol::Tensor;

    use super::*;

    fn array(datatype: DataType, data: &[u8], format: Format) -> Array {
        let count = data.len() / datatype.size().unwrap();
        let tensor = Tensor::new(datatype, vec![count], Bytes::copy_from_slice(data)).unwrap();
        Array { tensor, format }
    }

    #[test]
    fn pixels_become_shares_and_other_bytes_stay_numbers() {
        let floats =
            |format| elements(&array(DataType::Uint8, &[0, 51, 255], format), DataType::Fp32).unwrap();
        let bytes =
            |values: [f32; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(floats(Format::Idx), bytes([0.0, 0.2, 1.0]));
        assert_eq!(floats(Format::Npy), bytes([0.0, 51.0, 255.0]));
    }

    #[test]
    fn whole_numbers_change_their_width_only_where_they_fit() {
        let wide = array(DataType::Int64, &300i64.to_le_bytes(), Format::Npy);
        assert_eq!(elements(&wide, DataType::Int32).unwrap().as_ref(), 300i32.to_le_bytes());
        assert_eq!(elements(&wide, DataType::Uint8).unwrap_err(), "its element 300 is not a valid UINT8");
        let broken = array(DataType::Fp32, &0.5f32.to_le_bytes(), Format::Npy);
        assert!(elements(&broken, DataType::Int32).is_err());
        assert!(elements(&broken, DataType::Bool).is_err());
    }

    #[test]
    fn floats_become_the_nearest_of_half_precision() {
        let of = |number: f32| array(DataType::Fp32, &number.to_le_bytes(), Format::Npy);
        let bytes = |number, datatype| elements(&of(number), datatype).map(|bytes| bytes.to_vec());
        // 0.3768 is between 1543 and 1544 of 2^-12, and between 192 and 193 of 2^-9.
        for (number, fp16, bf16) in [(0.125f32, 0x3000u16, 0x3E00u16), (0.3768, 0x3607, 0x3EC1)] {
            assert_eq!(bytes(number, DataType::Fp16).unwrap(), fp16.to_le_bytes(), "{number}");
            assert_eq!(bytes(number, DataType::Bf16).unwrap(), bf16.to_le_bytes(), "{number}");
        }
        assert_eq!(bytes(1e6, DataType::Fp16).unwrap_err(), "its element 1000000 is not a valid FP16");
        let pixel = array(DataType::Uint8, &[255], Format::Idx);
        assert_eq!(elements(&pixel, DataType::Fp16).unwrap().as_ref(), 0x3C00u16.to_le_bytes());
        let half = array(DataType::Fp16, &0x3000u16.to_le_bytes(), Format::Npy);
        assert_eq!(elements(&half, DataType::Fp32).unwrap().as_ref(), 0.125f32.to_le_bytes());
    }
}
