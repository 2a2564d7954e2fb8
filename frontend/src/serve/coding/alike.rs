//! Whether two answers say the same, as far as clients care.
//!
//! What the values mean decides. Scores of classes say the same where the same class is best, at every position. Numbers do
//! where they are no further apart than a share of their size, embeddings where they point the same way. Whole numbers, flags and strings must be equal. Where nobody
//! says what floats mean, either will do: scores of a smaller model are other numbers for the same class, and coordinates
//! that are close need not have the same largest one. That is lenient, for who is too strict here takes good answers for
//! wrong ones and withholds them.

use std::borrow::Cow;

use half::{bf16, f16};
use parm_parity_models::bundle::Meaning;
use parm_protocol::{DataType, Tensor};

/// Whether two answers of one output say the same; `None` where they cannot be compared, such as lists of other lengths.
pub(super) fn alike(a: &Tensor, b: &Tensor, meaning: Option<Meaning>, tolerance: f32) -> Option<bool> {
    if a.datatype() != b.datatype() || a.shape() != b.shape() {
        return None;
    }
    if !is_float(a.datatype()) {
        return Some(a.data() == b.data());
    }
    let classes = a.shape().last().copied().unwrap_or(1).max(1);
    let (a, b) = (floats(a)?, floats(b)?);
    Some(match meaning {
        Some(Meaning::Values) => near(&a, &b, tolerance),
        Some(Meaning::Embedding) => Meaning::same_directions(&a, &b, classes),
        Some(Meaning::Logits | Meaning::Probabilities) => same_classes(&a, &b, classes),
        None => near(&a, &b, tolerance) || (classes > 1 && same_classes(&a, &b, classes)),
    })
}

/// Whether the values are of a kind that can be no number.
pub(super) fn is_float(datatype: DataType) -> bool {
    matches!(datatype, DataType::Fp16 | DataType::Fp32 | DataType::Fp64 | DataType::Bf16)
}

/// The values of a tensor of floats.
pub(super) fn floats(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
    let data = tensor.data();
    let two = || data.as_chunks::<2>().0.iter().copied();
    Some(match tensor.datatype() {
        DataType::Fp32 => tensor.as_f32().ok()?,
        DataType::Fp16 => two().map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
        DataType::Bf16 => two().map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect(),
        DataType::Fp64 => {
            data.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect()
        }
        _ => return None,
    })
}

/// Whether the same class is best at every position; the classes lie along the last axis.
pub(super) fn same_classes(a: &[f32], b: &[f32], classes: usize) -> bool {
    a.len() == b.len() && a.chunks(classes).zip(b.chunks(classes)).all(|(a, b)| top(a) == top(b))
}

/// Whether two lists of numbers are no further apart than this share of their size.
pub(super) fn near(a: &[f32], b: &[f32], tolerance: f32) -> bool {
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
    let size = norm(&mut a.iter().copied()).max(norm(&mut b.iter().copied()));
    a.len() == b.len() && apart <= tolerance * size + 1e-6
}

/// The class with the highest score.
fn top(scores: &[f32]) -> Option<usize> {
    let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_f32([1, values.len()].as_slice(), values).unwrap()
    }

    #[test]
    fn what_the_values_mean_decides_what_is_the_same() {
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
        check(&[1.0, 2.0], &[2.0, 4.2], Some(Meaning::Embedding), true);
        check(&[1.0, 2.0], &[2.0, 1.0], Some(Meaning::Embedding), false);
        check(&[f32::NAN, 1.0], &[1.0, 1.0], values, false);
    }

    #[test]
    fn whole_numbers_must_be_equal_and_other_shapes_say_nothing() {
        let ints = |value: i64| {
            Tensor::new(DataType::Int64, [1].as_slice(), value.to_le_bytes().to_vec().into()).unwrap()
        };
        assert_eq!(alike(&ints(3), &ints(3), None, 0.1), Some(true));
        assert_eq!(alike(&ints(3), &ints(4), None, 0.9), Some(false));
        assert_eq!(alike(&floats(&[1.0]), &floats(&[1.0, 2.0]), None, 0.1), None);
        assert_eq!(alike(&floats(&[1.0]), &ints(1), None, 0.1), None);
    }

    #[test]
    fn halves_and_doubles_are_numbers_too() {
        let tensor = |datatype, bytes: Vec<u8>| Tensor::new(datatype, [1].as_slice(), bytes.into()).unwrap();
        let all = [
            tensor(DataType::Fp16, f16::from_f32(1.5).to_le_bytes().to_vec()),
            tensor(DataType::Bf16, bf16::from_f32(1.5).to_le_bytes().to_vec()),
            tensor(DataType::Fp64, 1.5f64.to_le_bytes().to_vec()),
            tensor(DataType::Fp32, 1.5f32.to_le_bytes().to_vec()),
        ];
        all.iter().for_each(|tensor| assert_eq!(super::floats(tensor).unwrap().as_ref(), [1.5]));
    }
}
