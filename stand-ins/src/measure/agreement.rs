//! Agreement: the share of rows for which a candidate gives the deployed model's answer.

use parm_parity_models::bundle::{Meaning, cosine};
use parm_protocol::{DataType, Tensor};
use serde::Serialize;

/// Two lists of numbers agree if their distance is at most this share of their size.
const TOLERANCE: f32 = 0.05;
/// Probabilities below this are treated as equal.
const UNLIKELY: f32 = 1e-6;
/// The quantile of the normal distribution for 95 % intervals.
pub(super) const Z: f64 = 1.96;

/// A share of the rows, with its 95 % interval (Wilson's, which holds near 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The share.
    pub value: f64,
    /// The interval's lower bound.
    pub low: f64,
    /// The interval's upper bound.
    pub high: f64,
}

impl Share {
    /// The share of `true`.
    pub(crate) fn of(judged: &[bool]) -> Self {
        let count = judged.len().max(1) as f64;
        let value = judged.iter().filter(|same| **same).count() as f64 / count;
        let spread = Z * Z / count;
        let middle = (value + spread / 2.0) / (1.0 + spread);
        let half = Z * (value * (1.0 - value) / count + spread / count / 4.0).sqrt() / (1.0 + spread);
        Self { value, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
    }
}

/// Guesses the meaning of a model's outputs: probabilities if every row is a distribution, otherwise logits if there
/// are several classes, otherwise values.
pub(crate) fn meaning(answers: &[Tensor]) -> Meaning {
    let Some((first, values)) = answers.first().and_then(|first| Some((first, first.as_f32().ok()?))) else {
        return Meaning::Values;
    };
    let classes = first.shape().last().copied().unwrap_or(1);
    if classes < 2 || first.shape().len() != 2 {
        return Meaning::Values;
    }
    let is_distribution =
        |row: &[f32]| row.iter().all(|value| *value >= 0.0) && (row.iter().sum::<f32>() - 1.0).abs() < 1e-2;
    match values.chunks(classes).all(is_distribution) {
        true => Meaning::Probabilities,
        false => Meaning::Logits,
    }
}

/// For each row, whether two models agree in every output.
pub(crate) fn judge(deployed: &[Tensor], other: &[Tensor], meaning: Meaning) -> Vec<bool> {
    let rows = deployed.first().map_or(0, Tensor::rows);
    let mut same = vec![deployed.len() == other.len(); rows];
    for (a, b) in deployed.iter().zip(other) {
        for (row, same) in same.iter_mut().enumerate() {
            let pair = a.slice_rows(row, 1).ok().zip(b.slice_rows(row, 1).ok());
            *same &= pair.is_some_and(|(a, b)| alike(&a, &b, meaning));
        }
    }
    same
}

fn alike(a: &Tensor, b: &Tensor, meaning: Meaning) -> bool {
    if a.datatype() != DataType::Fp32 || a.shape() != b.shape() || b.datatype() != DataType::Fp32 {
        return a == b;
    }
    let (Ok(a_values), Ok(b_values)) = (a.as_f32(), b.as_f32()) else { return false };
    let classes = a.shape().last().copied().unwrap_or(1).max(1);
    match meaning {
        Meaning::Values => distance(&a_values, &b_values) <= TOLERANCE,
        Meaning::Embedding => Meaning::same_directions(&a_values, &b_values, classes),
        Meaning::Logits | Meaning::Probabilities => {
            a_values.chunks(classes).zip(b_values.chunks(classes)).all(|(a, b)| best(a) == best(b))
        }
    }
}

/// The mean cosine between the embeddings of all outputs; `None` for other meanings.
pub(crate) fn mean_cosine(deployed: &[Tensor], other: &[Tensor], meaning: Meaning) -> Option<f64> {
    if meaning != Meaning::Embedding {
        return None;
    }
    let (mut sum, mut count) = (0.0, 0usize);
    for (a, b) in deployed.iter().zip(other) {
        let (Ok(a_values), Ok(b_values)) = (a.as_f32(), b.as_f32()) else { continue };
        let size = a.shape().last().copied().unwrap_or(1).max(1);
        for (a, b) in a_values.chunks(size).zip(b_values.chunks(size)) {
            sum += f64::from(cosine(a, b));
            count += 1;
        }
    }
    (count > 0).then(|| sum / count as f64)
}

/// For each row, whether the best class of the first output is the label.
pub(crate) fn right(answers: &[Tensor], labels: &[usize]) -> Vec<bool> {
    let Some((first, values)) = answers.first().and_then(|first| Some((first, first.as_f32().ok()?))) else {
        return Vec::new();
    };
    let classes = (first.len() / first.rows().max(1)).max(1);
    values.chunks(classes).zip(labels).map(|(row, label)| best(row) == Some(*label)).collect()
}

/// The mean distance between two models' outputs, relative to their size. Scores and probabilities of classes are
/// compared by what decides between the classes: scores less their mean, which for probabilities are their
/// logarithms.
pub(crate) fn mean_distance(deployed: &[Tensor], other: &[Tensor], meaning: Meaning) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (a, b) in deployed.iter().zip(other) {
        let (Ok(a_values), Ok(b_values)) = (a.as_f32(), b.as_f32()) else { continue };
        let each = (a.len() / a.rows().max(1)).max(1);
        let classes = a.shape().last().copied().unwrap_or(1).max(1);
        let (a_values, b_values) = (scores(&a_values, classes, meaning), scores(&b_values, classes, meaning));
        for (a, b) in a_values.chunks(each).zip(b_values.chunks(each)) {
            sum += f64::from(distance(a, b));
            count += 1;
        }
    }
    if count == 0 { f64::INFINITY } else { sum / f64::from(count) }
}

/// The numbers that decide between classes.
fn scores(values: &[f32], classes: usize, meaning: Meaning) -> Vec<f32> {
    let scores: Vec<f32> = match meaning {
        Meaning::Values => return values.to_vec(),
        Meaning::Embedding => {
            let unit = |row: &[f32]| {
                let size = row.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
                row.iter().map(|value| value / size).collect::<Vec<f32>>()
            };
            return values.chunks(classes).flat_map(unit).collect();
        }
        Meaning::Logits => values.to_vec(),
        // `f32::max` would turn NaN into a number.
        Meaning::Probabilities => {
            values.iter().map(|&value| if value < UNLIKELY { UNLIKELY.ln() } else { value.ln() }).collect()
        }
    };
    let centred = |row: &[f32]| {
        let mean = row.iter().sum::<f32>() / row.len() as f32;
        row.iter().map(|score| score - mean).collect::<Vec<f32>>()
    };
    scores.chunks(classes).flat_map(centred).collect()
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| a - b));
    let size = norm(&mut a.iter().copied()).max(norm(&mut b.iter().copied()));
    if a.len() != b.len() || !apart.is_finite() { f32::INFINITY } else { apart / size.max(1e-6) }
}

/// The class of the highest score.
pub(super) fn best(scores: &[f32]) -> Option<usize> {
    let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Vec<Tensor> {
        vec![Tensor::from_f32([values.len() / 2, 2].as_slice(), values).unwrap()]
    }

    #[test]
    fn agreement_depends_on_the_meaning_of_values() {
        let (a, b) = (rows(&[0.6, 0.4, 0.1, 0.9]), rows(&[0.9, 0.1, 0.6, 0.4]));
        assert_eq!(judge(&a, &b, Meaning::Probabilities), [true, false]);
        assert_eq!(judge(&a, &b, Meaning::Values), [false, false]);
        assert_eq!(judge(&a, &a, Meaning::Values), [true, true]);
        assert_eq!(judge(&a, &[], Meaning::Values), [false, false]);
        assert_eq!(right(&a, &[0, 0]), [true, false]);
    }

    #[test]
    fn meaning_tells_probabilities_from_logits_and_values() {
        assert_eq!(meaning(&rows(&[0.6, 0.4, 0.1, 0.9])), Meaning::Probabilities);
        assert_eq!(meaning(&rows(&[6.0, 0.4])), Meaning::Logits);
        assert_eq!(meaning(&[Tensor::from_f32([2, 1].as_slice(), &[1.0, 2.0]).unwrap()]), Meaning::Values);
    }

    #[test]
    fn interval_narrows_with_the_number_of_rows() {
        let few = Share::of(&[true; 50]);
        assert_eq!(few.value, 1.0);
        assert!(few.low > 0.9 && few.low < 0.95 && few.high == 1.0, "{few:?}");
        let many = Share::of(&[[true; 99].as_slice(), &[false]].concat().repeat(20));
        assert!(many.low > 0.984 && many.low < 0.99 && many.high < 0.995, "{many:?}");
    }

    #[test]
    fn distance_of_scores_ignores_a_common_offset() {
        let same = mean_distance(&rows(&[2.0, 1.0]), &rows(&[7.0, 6.0]), Meaning::Logits);
        assert!(same < 1e-6, "{same}");
        let (sure, surer) = (rows(&[0.9, 0.1]), rows(&[0.99, 0.01]));
        let far = mean_distance(&sure, &surer, Meaning::Probabilities);
        assert!(far > 4.0 * mean_distance(&sure, &surer, Meaning::Values), "{far}");
    }

    #[test]
    fn distance_of_embeddings_ignores_their_length() {
        let far = mean_distance(&rows(&[1.0, 2.0]), &rows(&[10.0, 20.0]), Meaning::Embedding);
        assert!(far < 1e-5, "{far}");
    }

    #[test]
    fn distance_to_nan_is_infinite() {
        for meaning in [Meaning::Values, Meaning::Logits, Meaning::Probabilities] {
            let none = mean_distance(&rows(&[1.0, 0.0]), &rows(&[f32::NAN, 0.0]), meaning);
            assert_eq!(none, f64::INFINITY, "{meaning:?}");
        }
        assert_eq!(mean_distance(&rows(&[2.0, 0.0]), &rows(&[1.0, 0.0]), Meaning::Values), 0.5);
    }
}
