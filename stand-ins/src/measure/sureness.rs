//! How sure a stand-in's answers are, and how far that is from how often they are right.

use parm_parity_models::bundle::{Calibration, Case, Meaning, expected_error};
use parm_protocol::Tensor;
use serde::Serialize;

use super::agreement::{Share, best, right};

/// A calibration, and what one of every second row is worth on the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// What brings confidence near to how often answers are right.
    #[serde(flatten)]
    pub calibration: Calibration,
    /// How far it is from that in the mean, on rows that it was not fitted on: fitted on half of them, and measured on the other half.
    pub expected_error: f64,
}

/// What classes answers should have named: the labels, or without any what the deployed model says.
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

/// Fits confidence to answers; where they are no scores of classes there is none. Only labels tell below which confidence an
/// answer is too often wrong to be given: what says something else than the deployed model need not be wrong.
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
        // The least sure of several outputs speaks for all of them, and the labels are of the first.
        Truth::Labels(labels) if answers.len() == 1 => Share::of(&right(said, labels)).value,
        _ => 0.0,
    };
    let of_half = Calibration::fit(&part(0), meaning, available);
    let calibration = Calibration::fit(&cases, meaning, available);
    Some(Sureness { calibration, expected_error: error(&part(1), of_half, meaning) })
}

/// How far confidence by a calibration is from how often answers are right, in the mean.
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

/// The scores of the first output, if it has some for each row: their number, and all of them.
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
    fn labels_tell_what_is_too_unsure_and_the_deployed_model_does_not() {
        // Every fourth answer is unsure, and wrong.
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
    fn of_several_outputs_no_threshold_is_made() {
        let two = |of: fn(usize) -> [f32; 2]| vec![answers(of).remove(0), answers(|_| [0.1, 0.0]).remove(0)];
        let found = two(|row| if row % 8 < 2 { [0.1, 0.0] } else { [8.0, 0.0] });
        let said = two(|row| if row % 8 < 2 { [0.0, 1.0] } else { [1.0, 0.0] });
        let labels: Vec<usize> = (0..400).map(|row| usize::from(row % 8 < 2)).collect();
        let sure = sureness(&said, &found, &Truth::Labels(&labels), Meaning::Logits).unwrap();
        assert_eq!(sure.calibration.threshold, 0.0);
    }

    #[test]
    fn the_error_is_that_of_rows_which_the_calibration_was_not_fitted_on() {
        // What it is fitted on is always right, the others never.
        let answers = answers(|_| [5.0, 0.0]);
        let labels: Vec<usize> = (0..400).map(|row| row % 2).collect();
        let found = sureness(&answers, &answers, &Truth::Labels(&labels), Meaning::Logits).unwrap();
        assert!(found.expected_error > 0.95, "{found:?}");
        let error = calibration_error(&answers, &Truth::Labels(&labels), found.calibration, Meaning::Logits);
        assert!(error.unwrap() < 0.1, "{error:?}: half of all are right, and temperatures have a bound");
    }
}
