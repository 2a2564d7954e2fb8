//! Confidence of a stand-in's answers, and its calibration error.

use parm_parity_models::bundle::{Calibration, Case, ClassScores, Meaning, expected_error, floats};
use parm_protocol::Tensor;
use serde::Serialize;

use super::agreement::{Share, finite};
use super::meanings::columns;

/// A calibration and its error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sureness {
    /// Maps scores to a confidence near the probability that the answer is right.
    #[serde(flatten)]
    pub calibration: Calibration,
    /// The expected calibration error on held-out rows: fitted on every second row, measured on the others.
    pub expected_error: f64,
}

/// The outputs that have classes, for several rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScoredRows {
    pub(super) outputs: Vec<Scored>,
    /// Whether a server would give each row's answer: all its floats are finite, those without classes too.
    is_served: Vec<bool>,
}

/// The scores of one output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scored {
    values: Vec<f32>,
    columns: usize,
    meaning: Meaning,
    /// Whether each row has one position.
    pub(super) is_single: bool,
}

/// The true classes: labels for the output that they belong to, and the deployed model's answers for the others.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(super) said: ScoredRows,
    /// The output, and the class of each row.
    pub(super) labels: Option<(usize, Vec<usize>)>,
}

impl ScoredRows {
    /// The outputs that have classes, of answers whose outputs have these meanings.
    pub(super) fn of(answers: &[Tensor], meanings: &[Meaning]) -> Self {
        let pairs = answers.iter().zip(meanings).filter(|(_, meaning)| meaning.has_classes());
        let outputs = pairs.filter_map(|(answer, &meaning)| {
            let (values, is_single) = (floats(answer)?.into_owned(), answer.shape().len() == 2);
            Some(Scored { values, columns: columns(answer), meaning, is_single })
        });
        Self { outputs: outputs.collect(), is_served: finite(answers) }
    }

    fn is_empty(&self) -> bool {
        self.outputs.is_empty() || self.is_served.is_empty()
    }

    fn rows(&self) -> Vec<Vec<ClassScores<'_>>> {
        let count = self.is_served.len();
        let row = |at: usize| {
            let scores = self.outputs.iter().filter_map(|output| {
                let each = output.values.len() / count;
                ClassScores::new(&output.values[at * each..(at + 1) * each], output.columns, output.meaning)
            });
            scores.collect()
        };
        (0..count).map(row).collect()
    }
}

impl Truth {
    pub(crate) fn is_labelled(&self) -> bool {
        self.labels.is_some()
    }

    /// The classes of each row's positions.
    fn classes(&self) -> Vec<Vec<usize>> {
        let of_row = |(at, outputs): (usize, Vec<ClassScores<'_>>)| {
            let of_output = |(place, output): (usize, ClassScores<'_>)| match &self.labels {
                Some((labelled, labels)) if *labelled == place => vec![labels[at]],
                _ => output.best().collect(),
            };
            outputs.into_iter().enumerate().flat_map(of_output).collect()
        };
        self.said.rows().into_iter().enumerate().map(of_row).collect()
    }

    /// The deployed model's accuracy, from which a threshold follows. There is none without labels, since an answer that
    /// differs from the deployed model's need not be wrong; nor for several positions, since labels are for one.
    fn available(&self) -> f64 {
        match (&self.labels, &self.said.outputs[..]) {
            (Some((_, labels)), [output]) if output.is_single => {
                let rows = self.said.rows().into_iter().zip(labels);
                let right = rows.map(|(row, label)| row.iter().all(|scores| scores.best().eq([*label])));
                Share::of(&right.collect::<Vec<_>>()).value
            }
            _ => 0.0,
        }
    }
}

/// Fits confidence to answers; `None` if they are not scores of classes.
pub(crate) fn sureness(answers: &ScoredRows, truth: &Truth) -> Option<Sureness> {
    let (cases, available) = (cases(answers, truth), truth.available());
    let part = |odd: usize| cases.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
    let expected_error = error(&part(1), Calibration::fit(&part(0), available));
    let calibration = Calibration::fit(&cases, available);
    (!answers.is_empty()).then_some(Sureness { calibration, expected_error })
}

/// The expected error of a calibration: the mean distance between confidence and the share of right answers.
pub(crate) fn calibration_error(
    answers: &ScoredRows,
    truth: &Truth,
    calibration: Calibration,
) -> Option<f64> {
    (!answers.is_empty()).then(|| error(&cases(answers, truth), calibration))
}

fn error(cases: &[Case<'_>], calibration: Calibration) -> f64 {
    expected_error(&cases.iter().map(|case| calibration.sure(case)).collect::<Vec<_>>())
}

/// The rows that a server would answer: it withholds answers with floats that are not finite, in any output.
fn cases<'a>(answers: &'a ScoredRows, truth: &Truth) -> Vec<Case<'a>> {
    let rows = answers.rows().into_iter().zip(truth.classes());
    let served = rows.zip(&answers.is_served).filter(|(_, is_served)| **is_served);
    served.map(|((answer, truth), _)| Case { answer, truth }).collect()
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::super::Meanings;
    use super::*;

    fn answers(of: impl Fn(usize) -> [f32; 2]) -> Tensor {
        let values: Vec<f32> = (0..400).flat_map(of).collect();
        Tensor::from_f32([400, 2].as_slice(), &values).unwrap()
    }

    fn logits(outputs: &[Tensor]) -> ScoredRows {
        ScoredRows::of(outputs, &vec![Meaning::Logits; outputs.len()])
    }

    fn labelled(said: &ScoredRows, labels: &[usize]) -> Truth {
        Truth { said: said.clone(), labels: Some((0, labels.to_vec())) }
    }

    #[test]
    fn threshold_is_fitted_only_from_labels_of_a_single_output() {
        // Every fourth answer has a low confidence, and is wrong.
        let own = answers(|row| if row % 8 < 2 { [0.1, 0.0] } else { [8.0, 0.0] });
        let deployed = answers(|row| if row % 8 < 2 { [0.0, 1.0] } else { [1.0, 0.0] });
        let labels: Vec<usize> = (0..400).map(|row| usize::from(row % 8 < 2)).collect();
        let (found, said) = (logits(std::slice::from_ref(&own)), logits(std::slice::from_ref(&deployed)));
        let by_labels = sureness(&found, &labelled(&said, &labels)).unwrap();
        let threshold = by_labels.calibration.threshold;
        assert!(threshold > 0.5 && by_labels.expected_error < 0.2, "{by_labels:?}");
        let by_model = sureness(&found, &Truth { said, labels: None }).unwrap();
        assert_eq!(by_model.calibration.threshold, 0.0);
        assert_eq!(by_model.calibration.temperature, by_labels.calibration.temperature);
        let beside = answers(|_| [0.1, 0.0]);
        let [found, said] = [own, deployed].map(|output| logits(&[output, beside.clone()]));
        assert_eq!(sureness(&found, &labelled(&said, &labels)).unwrap().calibration.threshold, 0.0);
        let none = ScoredRows::default();
        assert_eq!(sureness(&none, &Truth { said: none.clone(), labels: None }), None);
    }

    #[test]
    fn expected_error_is_measured_on_held_out_rows() {
        // Rows of the fit are always right, the others never.
        let answers = logits(&[answers(|_| [5.0, 0.0])]);
        let labels: Vec<usize> = (0..400).map(|row| row % 2).collect();
        let truth = labelled(&answers, &labels);
        let found = sureness(&answers, &truth).unwrap();
        assert!(found.expected_error > 0.95, "{found:?}");
        let error = calibration_error(&answers, &truth, found.calibration);
        assert!(
            error.unwrap() < 0.1,
            "{error:?}: half of the rows are right, and the temperature is bounded"
        );
    }

    /// Two outputs: one of 3 positions of 4 classes, and one of probabilities. The stand-in has `noise`.
    fn several(noise: f32) -> ScoredRows {
        const ROWS: usize = 2_000;
        let (mut random, mut other) = (Random::of(5, [1]), Random::of(5, [2]));
        let mut draw = |count: usize| -> Vec<f32> {
            let value = |_| 12.0 * (random.unit() as f32 + noise * other.unit() as f32);
            (0..count).map(value).collect()
        };
        let characters = Tensor::from_f32([ROWS, 3, 4].as_slice(), &draw(ROWS * 12)).unwrap();
        let pairs = draw(ROWS).into_iter().flat_map(|score| {
            let share = 1.0 / (1.0 + (6.0 - score).exp());
            [share, 1.0 - share]
        });
        let pairs = Tensor::from_f32([ROWS, 2].as_slice(), &pairs.collect::<Vec<f32>>()).unwrap();
        ScoredRows::of(&[characters, pairs], &[Meaning::Logits, Meaning::Probabilities])
    }

    #[test]
    fn confidence_is_the_share_of_answers_that_agree_as_a_whole() {
        let (said, found) = (several(0.0), several(0.3));
        let truth = Truth { said, labels: None };
        let sure = sureness(&found, &truth).unwrap();
        assert!(sure.expected_error < 0.05, "{sure:?}");
        // The same code reads an answer in the server, row by row.
        let (mut sum, mut right) = (0.0, 0);
        for (row, truth) in found.rows().into_iter().zip(&truth.classes()) {
            sum += sure.calibration.confidence(row.iter().copied()).unwrap();
            right += usize::from(row.iter().flat_map(|scores| scores.best()).eq(truth.iter().copied()));
        }
        let (mean, share) = (sum / 2_000.0, right as f32 / 2_000.0);
        assert!((mean - share).abs() < 0.03 && (0.1..0.9).contains(&share), "{mean} {share}");
    }

    #[test]
    fn answers_that_servers_withhold_are_neither_right_nor_fitted() {
        let labels: Vec<usize> = (0..400).map(|row| usize::from(row % 10 >= 7)).collect();
        let given = answers(|row| if row < 200 { [3.0, 0.0] } else { [3.0, f32::NEG_INFINITY] });
        let right = Meanings::all(Meaning::Logits).right(std::slice::from_ref(&given), &labels);
        assert_eq!(right.iter().filter(|is_right| **is_right).count(), 140, "of the first 200 rows");
        let part = |count| {
            let scores = logits(&[given.slice_rows(0, count).unwrap()]);
            sureness(&scores, &labelled(&scores, &labels[..count])).unwrap()
        };
        assert_eq!((part(400).calibration.temperature, part(400).calibration.curve), {
            let half = part(200).calibration;
            (half.temperature, half.curve)
        });
    }

    #[test]
    fn rows_with_a_number_that_is_not_finite_are_left_out() {
        // Every second row has a number that servers withhold, and a class that is wrong.
        let classes = answers(|row| if row % 4 < 2 { [3.0, 0.0] } else { [0.0, 3.0] });
        let number = |row: usize| if row % 4 < 2 { 1.0 } else { f32::NAN };
        let numbers = Tensor::from_f32([400, 1].as_slice(), &(0..400).map(number).collect::<Vec<_>>());
        let meanings = [Meaning::Logits, Meaning::Values];
        let given = ScoredRows::of(&[classes, numbers.unwrap()], &meanings);
        let truth = Truth { said: logits(&[answers(|_| [3.0, 0.0])]), labels: None };
        let cases = |rows: &ScoredRows| cases(rows, &truth).len();
        assert_eq!(cases(&given), 200);
        let fitted = sureness(&given, &truth).unwrap();
        assert!(fitted.expected_error < 0.05, "{fitted:?}: served answers are all right");
        assert!(calibration_error(&given, &truth, fitted.calibration).unwrap() < 0.05);
    }

    #[test]
    fn labels_belong_to_their_output() {
        let said = logits(&[answers(|_| [9.0, 0.0]), answers(|row| [0.0, (row % 2) as f32 - 0.5])]);
        let labels: Vec<usize> = (0..400).map(|row| row % 2).collect();
        let sure = |output| {
            let truth = Truth { said: said.clone(), labels: Some((output, labels.clone())) };
            cases(&said, &truth)
                .iter()
                .filter(|case| {
                    let (_, is_right) = Calibration::default().sure(case);
                    is_right
                })
                .count()
        };
        assert_eq!((sure(1), sure(0)), (400, 200));
    }
}
