//! Which queries may be mixed with others by a code.
//!
//! A code adds queries up; one NaN, or one value far beyond all others, would spoil the whole group. Such a query is
//! served alone. What is absurd for a model is not known here, so the bound is a setting and generous.

use parm_protocol::{DataType, NamedTensor};

/// Whether every input is FP32 with finite values within `magnitude`.
pub(crate) fn is_codable(inputs: &[NamedTensor], magnitude: f32) -> bool {
    inputs.iter().all(|input| {
        input.tensor.datatype() == DataType::Fp32
            && input.tensor.as_f32().is_ok_and(|values| is_bounded(&values, magnitude))
    })
}

/// In blocks without a branch inside, so that the compiler uses vectors; a NaN fails the comparison.
fn is_bounded(values: &[f32], magnitude: f32) -> bool {
    values.chunks(1024).all(|block| block.iter().fold(true, |good, value| good & (value.abs() <= magnitude)))
}

#[cfg(test)]
mod tests {
    use parm_protocol::Tensor;

    use super::*;

    #[test]
    fn one_bad_value_anywhere_is_found() {
        let good = vec![1.0f32; 3000];
        assert!(is_bounded(&good, 10.0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 10.1, -1e31] {
            for place in [0, 1023, 1024, 2999] {
                let mut values = good.clone();
                values[place] = bad;
                assert!(!is_bounded(&values, 10.0), "{bad} at {place}");
            }
        }
    }

    #[test]
    fn other_datatypes_are_not_mixed() {
        let floats = NamedTensor::new("x", Tensor::from_f32([1, 2].as_slice(), &[1.0, 2.0]).unwrap());
        let ints = Tensor::new(DataType::Int32, [1, 1].as_slice(), vec![0u8; 4].into()).unwrap();
        assert!(is_codable(std::slice::from_ref(&floats), 10.0));
        assert!(!is_codable(&[floats, NamedTensor::new("n", ints)], 10.0));
    }
}
