//! Scores of classes in an answer, which the fit of a calibration and the server read alike.
//!
//! An answer may have several outputs with classes, and an output several positions, such as characters. An answer is as
//! sure as its least confident position, and right only if each position is. If the fit read the first output alone,
//! a fitted confidence would not be that of the answers which clients receive.

use std::borrow::Cow;

use half::{bf16, f16};
use parm_protocol::{DataType, Tensor};

use super::{Meaning, best};

/// The scores of one output of an answer: a list for each position.
#[derive(Clone, Copy, Debug)]
pub struct ClassScores<'a> {
    values: &'a [f32],
    classes: usize,
    meaning: Meaning,
}

/// An answer and the true class of each position.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The outputs that have classes.
    pub answer: Vec<ClassScores<'a>>,
    /// The true classes of the positions, output by output. A position without one is not right.
    pub truth: Vec<usize>,
}

impl<'a> ClassScores<'a> {
    /// The scores in an output of one row, whose last axis has `classes` values; `None` if these are not scores of two
    /// classes or more.
    pub fn new(values: &'a [f32], classes: usize, meaning: Meaning) -> Option<Self> {
        let has_classes = meaning.has_classes() && classes > 1 && values.len() >= classes;
        has_classes.then_some(Self { values, classes, meaning })
    }

    /// The scores of each position.
    pub fn positions(self) -> impl ExactSizeIterator<Item = &'a [f32]> + Clone {
        self.values.chunks_exact(self.classes)
    }

    /// The best class of each position.
    pub fn best(self) -> impl Iterator<Item = usize> {
        self.positions().filter_map(best)
    }

    pub(super) fn meaning(self) -> Meaning {
        self.meaning
    }

    /// The number of scores.
    pub(super) fn len(self) -> usize {
        self.values.len()
    }
}

impl<'a> Case<'a> {
    /// An answer with one position.
    pub fn single(scores: &'a [f32], meaning: Meaning, truth: usize) -> Self {
        Self {
            answer: ClassScores::new(scores, scores.len(), meaning).into_iter().collect(),
            truth: vec![truth],
        }
    }

    /// Whether each position is right.
    pub(super) fn is_right(&self) -> bool {
        let said: Vec<usize> = self.answer.iter().flat_map(|output| output.best()).collect();
        !said.is_empty() && said == self.truth
    }
}

/// Values of a tensor of floats; `None` for other types.
pub fn floats(tensor: &Tensor) -> Option<Cow<'_, [f32]>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_right_only_if_each_position_is() {
        let (y, z) = ([9.0, 0.0, 0.0, 9.0], [0.2, 0.8]);
        let answer = || {
            let y = ClassScores::new(&y, 2, Meaning::Logits);
            y.into_iter().chain(ClassScores::new(&z, 2, Meaning::Probabilities)).collect::<Vec<_>>()
        };
        let is_right = |truth: &[usize]| Case { answer: answer(), truth: truth.to_vec() }.is_right();
        assert!(is_right(&[0, 1, 1]));
        assert!(!is_right(&[0, 0, 1]) && !is_right(&[0, 1, 0]) && !is_right(&[0, 1]));
        assert!(!Case { answer: Vec::new(), truth: Vec::new() }.is_right());
    }

    #[test]
    fn half_and_double_precision_floats_are_read() {
        let tensor = |datatype, bytes: Vec<u8>| Tensor::new(datatype, [1].as_slice(), bytes.into()).unwrap();
        let all = [
            tensor(DataType::Fp16, f16::from_f32(1.5).to_le_bytes().to_vec()),
            tensor(DataType::Bf16, bf16::from_f32(1.5).to_le_bytes().to_vec()),
            tensor(DataType::Fp64, 1.5f64.to_le_bytes().to_vec()),
            tensor(DataType::Fp32, 1.5f32.to_le_bytes().to_vec()),
        ];
        all.iter().for_each(|tensor| assert_eq!(floats(tensor).unwrap().as_ref(), [1.5]));
        assert_eq!(floats(&tensor(DataType::Int64, 3i64.to_le_bytes().to_vec())), None);
    }
}
