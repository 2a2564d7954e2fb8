//! Confidence of a stand-in's answers, and its calibration error.

use parm_parity_models::bundle::{Calibration, Case, Meaning, best, expected_error};
use parm_protocol::Tensor;
use serde::Serialize;

use super::agreement::{Share, right};

/// A calibration and its error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// Maps scores to a confidence near the probability that the answer is right.
    #[serde(flatten)]
    pub calibration: Calibration,
    /// The expected calibration error on held-out rows: fitted on every second row, measured on the others.
    pub expected_error: f64,
}

/// The true classes: the labels if there are any, otherwise the deployed model's answers.
pub(crate) enum Truth<'a> {
    Labels(&'a [usize]),
    Deployed(&'a [Tensor]),
}

impl Truth<'_> {
    /// The class of each row.
    fn classes(&self) -> Vec<usize> {
        match self {
            Self::Labels(labels) => labels.to_vec(),
            Self::Deployed(said) => scores(said).map_or(Vec::new(), |(classes, values)| {
                values.chunks_exact(classes).filter_map(best).collect()
            }),
        }
    }
}

/// Fits confidence to answers; `None` if they are not scores of classes. A threshold, below which answers are too
/// often wrong to be used, is fitted only from labels: an answer that differs from the deployed model's need not be
/// wrong.
pub(crate) fn sureness(
    said: &[Tensor],
    answers: &[Tensor],
    truth: &Truth<'_>,
    meaning: Meaning,
) -> Option<Sureness> {
    let (classes, values) = scores(answers).filter(|_| meaning.has_classes())?;
    let cases: Vec<Case<'_>> = cases(classes, &values, truth);
    let part = |odd: usize| cases.iter().copied().skip(odd).step_by(2).collect::<Vec<_>>();
    let available = match truth {
        // The least confident of several outputs counts for all of them, but the labels belong to the first.
        Truth::Labels(labels) if answers.len() == 1 => Share::of(&right(said, labels)).value,
        _ => 0.0,
    };
    let of_half = Calibration::fit(&part(0), meaning, available);
    let calibration = Calibration::fit(&cases, meaning, available);
    Some(Sureness { calibration, expected_error: error(&part(1), of_half, meaning) })
}

/// The expected error of a calibration: the mean distance between confidence and the share of right answers.
pub(crate) fn calibration_error(
    answers: &[Tensor],
    truth: &Truth<'_>,
    calibration: Calibration,
    meaning: Meaning,
) -> Option<f64> {
    let (classes, values) = scores(answers).filter(|_| meaning.has_classes())?;
    Some(error(&cases(classes, &values, truth), calibration, meaning))
}

fn error(cases: &[Case<'_>], calibration: Calibration, meaning: Meaning) -> f64 {
    expected_error(&cases.iter().map(|case| calibration.sure(*case, meaning)).collect::<Vec<_>>())
}

fn cases<'a>(classes: usize, values: &'a [f32], truth: &Truth<'_>) -> Vec<Case<'a>> {
    let rows = values.chunks_exact(classes).zip(truth.classes());
    rows.map(|(scores, truth)| Case { scores, truth }).collect()
}

/// The number of classes and the scores of the first output, if it has several scores per row.
fn scores(answers: &[Tensor]) -> Option<(usize, std::borrow::Cow<'_, [f32]>)> {
    let first = answers.first().filter(|first| first.shape().len() == 2)?;
    let classes = *first.shape().last()?;
    (classes > 1).then_some((classes, first.as_f32().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(of: impl Fn(usize) -> [f32; 2]) -> Vec<Tensor> {
        let values: Vec<f32> = (0..400).flat_map(of).collect();
        vec![Tensor::from_f32([400, 2].as_slice(), &values).unwrap()]
    }

    #[test]
    fn threshold_is_fitted_only_from_labels() {
        // Every fourth answer has a low confidence, and is wrong.
        let answers = answers(|row| if row % 8 < 2 { [0.1, 0.0] } else { [8.0, 0.0] });
        let said = self::answers(|row| if row % 8 < 2 { [0.0, 1.0] } else { [1.0, 0.0] });
        let labels: Vec<usize> = (0..400).map(|row| usize::from(row % 8 < 2)).collect();
        let by_labels = sureness(&said, &answers, &Truth::Labels(&labels), Meaning::Logits).unwrap();
        let threshold = by_labels.calibration.threshold;
        assert!(threshold > 0.5 && by_labels.expected_error < 0.2, "{by_labels:?}");
        let by_model = sureness(&said, &answers, &Truth::Deployed(&said), Meaning::Logits).unwrap();
        assert_eq!(by_model.calibration.threshold, 0.0);
        assert_eq!(by_model.calibration.temperature, by_labels.calibration.temperature);
        assert_eq!(sureness(&said, &answers, &Truth::Deployed(&said), Meaning::Values), None);
    }

    #[test]
    fn threshold_is_zero_for_several_outputs() {
        let two = |of: fn(usize) -> [f32; 2]| vec![answers(of).remove(0), answers(|_| [0.1, 0.0]).remove(0)];
        let found = two(|row| if row % 8 < 2 { [0.1, 0.0] } else { [8.0, 0.0] });
        let said = two(|row| if row % 8 < 2 { [0.0, 1.0] } else { [1.0, 0.0] });
        let labels: Vec<usize> = (0..400).map(|row| usize::from(row % 8 < 2)).collect();
        let sure = sureness(&said, &found, &Truth::Labels(&labels), Meaning::Logits).unwrap();
        assert_eq!(sure.calibration.threshold, 0.0);
    }

    #[test]
    fn expected_error_is_measured_on_held_out_rows() {
        // Rows of the fit are always right, the others never.
        let answers = answers(|_| [5.0, 0.0]);
        let labels: Vec<usize> = (0..400).map(|row| row % 2).collect();
        let found = sureness(&answers, &answers, &Truth::Labels(&labels), Meaning::Logits).unwrap();
        assert!(found.expected_error > 0.95, "{found:?}");
        let error = calibration_error(&answers, &Truth::Labels(&labels), found.calibration, Meaning::Logits);
        assert!(
            error.unwrap() < 0.1,
            "{error:?}: half of the rows are right, and the temperature is bounded"
        );
    }
}
