//! Compares two answers for equality as a client would judge it.
//!
//! The meaning of the values decides, as in the search for stand-ins. Integers, booleans and strings must be identical. For
//! floats without a stated meaning either comparison may succeed: a smaller
//! model has other scores for the same class, and close coordinates need not have the same largest one. This is
//! lenient, because a strict comparison would withhold good answers.

use parm_parity_models::bundle::{Meaning, floats};
use parm_protocol::{DataType, Tensor};

/// Whether two answers of one output are equal; `None` if they cannot be compared, for example with different lengths.
pub(super) fn alike(a: &Tensor, b: &Tensor, meaning: Option<Meaning>, tolerance: f32) -> Option<bool> {
    if a.datatype() != b.datatype() || a.shape() != b.shape() {
        return None;
    }
    if !is_float(a.datatype()) {
        return Some(a.data() == b.data());
    }
    let columns = a.shape().last().copied().unwrap_or(1).max(1);
    let (a, b) = (floats(a)?, floats(b)?);
    let agree = |meaning: Meaning| meaning.agree(&a, &b, columns, tolerance);
    Some(match meaning {
        Some(meaning) => agree(meaning),
        None => agree(Meaning::Values) || agree(Meaning::Logits),
    })
}

/// Whether the type has values that are not numbers (NaN).
pub(super) fn is_float(datatype: DataType) -> bool {
    matches!(datatype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64 | DataType::Bf16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_f32([1, values.len()].as_slice(), values).unwrap()
    }

    #[test]
    fn meaning_of_values_decides_equality() {
        let check = |a: &[f32], b: &[f32], meaning, same| {
            assert_eq!(alike(&floats(a), &floats(b), meaning, 0.1), Some(same), "{a:?} {b:?} {meaning:?}");
        };
        let (logits, values) = (Some(Meaning::Logits), Some(Meaning::Values));
        check(&[1.0, 9.0], &[0.1, 0.2], logits, true);
        check(&[1.0, 9.0], &[0.1, 0.2], values, false);
        check(&[1.0, 9.0], &[0.1, 0.2], None, true);
        check(&[9.0, 9.1], &[9.1, 9.0], Some(Meaning::Probabilities), false);
        check(&[9.0, 9.1], &[9.1, 9.0], values, true);
        check(&[9.0, 9.1], &[9.1, 9.0], None, true);
        check(&[9.0, 1.0], &[1.0, 9.0], None, false);
        check(&[3.0], &[7.0], None, false);
        check(&[0.1], &[0.9], Some(Meaning::Probabilities), false);
        check(&[0.6], &[0.9], Some(Meaning::Decision(0.5)), true);
        check(&[1.0, 2.0], &[2.0, 4.2], Some(Meaning::Embedding), true);
        check(&[1.0, 2.0], &[2.0, 1.0], Some(Meaning::Embedding), false);
        check(&[f32::NAN, 1.0], &[1.0, 1.0], values, false);
    }

    #[test]
    fn integers_must_be_equal_and_shapes_must_match() {
        let ints = |value: i64| {
            Tensor::new(DataType::Int64, [1].as_slice(), value.to_le_bytes().to_vec().into()).unwrap()
        };
        assert_eq!(alike(&ints(3), &ints(3), None, 0.1), Some(true));
        assert_eq!(alike(&ints(3), &ints(4), None, 0.9), Some(false));
        assert_eq!(alike(&floats(&[1.0]), &floats(&[1.0, 2.0]), None, 0.1), None);
        assert_eq!(alike(&floats(&[1.0]), &ints(1), None, 0.1), None);
    }
}
