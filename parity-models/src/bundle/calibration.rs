//! Calibrates the confidence of approximate answers, and the threshold below which they are held back.
//!
//! Networks are overconfident. A temperature, by which scores are divided before the softmax, corrects most of that;
//! [`Calibration::fit`] chooses the one with the smallest negative log-likelihood on held-out rows. Networks that
//! learned from softened labels are underconfident if right and overconfident if wrong, which no temperature corrects.
//! For them a curve maps confidence to observed accuracy. The threshold is the lowest confidence from which on
//! approximate answers are about as accurate as predictions; it holds back at most half of them.

use serde::{Deserialize, Serialize};

use super::curve::{self, Curve, along};
use super::{Meaning, Problem};

/// The smallest probability whose logarithm is used; the outputs of a decoder may be slightly negative.
const UNLIKELY: f32 = 1e-30;
/// The amount by which answers that are not held back may be less accurate than predictions.
const SLACK: f64 = 0.005;
/// Iterations of the search for the temperature.
const HALVINGS: usize = 40;
/// Bins of confidence in which it is compared with observed accuracy.
const BINS: usize = 15;

/// The confidence of an approximate answer, and the threshold that it must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Calibration {
    /// Divisor of logits before the softmax; its largest value is the confidence. Default 1.
    pub temperature: f32,
    /// Less confident answers are held back. Default 0: none is.
    pub threshold: f32,
    /// Rising pairs of a confidence (after the temperature) and the observed accuracy of such answers. Values between
    /// two pairs are interpolated. Default: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { temperature: 1.0, threshold: 0.0, curve: None }
    }
}

/// An answer and its true class.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Scores or probabilities of the classes.
    pub scores: &'a [f32],
    /// The true class; cases whose true class has no score are ignored.
    pub truth: usize,
}

impl Calibration {
    /// Fits a calibration to answers whose truth is known. `available` is the accuracy of predictions. Returns the
    /// default if the values are not scores of classes.
    pub fn fit(cases: &[Case<'_>], meaning: Meaning, available: f64) -> Self {
        if !meaning.has_classes() {
            return Self::default();
        }
        let logits: Vec<(Vec<f32>, usize)> = cases
            .iter()
            .filter(|case| case.truth < case.scores.len() && case.scores[case.truth].is_finite())
            .filter(|case| case.scores.iter().all(|score| *score < f32::INFINITY))
            .map(|case| (logits(case.scores, meaning).collect(), case.truth))
            .collect();
        if logits.is_empty() {
            return Self::default();
        }
        let temperature = coolest(&logits);
        let cooled = Self { temperature, ..Self::default() };
        let sure: Vec<(f32, bool)> = cases.iter().map(|case| cooled.sure(*case, meaning)).collect();
        let fitted = Self { curve: curve::fit(&sure), ..cooled };
        let sure = cases.iter().map(|case| fitted.sure(*case, meaning)).collect();
        Self { threshold: threshold(sure, available).clamp(0.0, 1.0), ..fitted }
    }

    /// Checks the numbers.
    pub(super) fn check(&self) -> Option<Problem> {
        let Self { temperature, threshold, curve } = *self;
        let is_share = |value: &f32| (0.0..=1.0).contains(value);
        if !(temperature > 0.0 && temperature.is_finite() && is_share(&threshold)) {
            return Some(Problem::Calibration { temperature, threshold });
        }
        curve.is_some_and(|curve| !curve::is_sound(&curve)).then_some(Problem::Curve)
    }

    /// The confidence of one output whose last axis has `classes` scores; the least confident position counts. `None`
    /// if the values are not scores of classes; 0 if they are not numbers.
    pub fn confidence(&self, values: &[f32], classes: usize, meaning: Meaning) -> Option<f32> {
        if !meaning.has_classes() || classes < 2 || values.len() < classes {
            return None;
        }
        let top = |scores: &[f32]| {
            let logits = || logits(scores, meaning).map(|logit| logit / self.temperature);
            let largest = logits().fold(f32::NEG_INFINITY, f32::max);
            let sure = 1.0 / logits().map(|logit| (logit - largest).exp()).sum::<f32>();
            match sure.is_finite() {
                true => self.curve.map_or(sure, |curve| along(&curve, sure)),
                false => 0.0,
            }
        };
        values.chunks_exact(classes).map(top).min_by(f32::total_cmp)
    }

    /// The confidence of an answer, and whether it is right.
    pub fn sure(&self, case: Case<'_>, meaning: Meaning) -> (f32, bool) {
        let best = case.scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let confidence = self.confidence(case.scores, case.scores.len(), meaning);
        (confidence.unwrap_or(0.0), best.is_some_and(|(class, _)| class == case.truth))
    }
}

/// Expected calibration error: the mean distance of confidence from observed accuracy, over fifteen bins of confidence.
pub fn expected_error(sure: &[(f32, bool)]) -> f64 {
    let mut bins = [(0.0, 0.0); BINS];
    for &(confidence, is_right) in sure {
        let at = (confidence * BINS as f32) as usize;
        let bin = &mut bins[at.min(BINS - 1)];
        *bin = (bin.0 + f64::from(confidence), bin.1 + f64::from(u8::from(is_right)));
    }
    bins.iter().map(|(confidence, right)| (confidence - right).abs()).sum::<f64>() / sure.len().max(1) as f64
}

/// Scores as logits: dividing the logarithms of probabilities by the temperature tempers them.
fn logits(scores: &[f32], meaning: Meaning) -> impl Iterator<Item = f32> + Clone + '_ {
    let is_logit = meaning == Meaning::Logits;
    scores.iter().map(move |&score| match () {
        () if is_logit || score.is_nan() => score,
        () => score.max(UNLIKELY).ln(),
    })
}

/// The temperature of the smallest negative log-likelihood, by golden-section search over its logarithm.
fn coolest(cases: &[(Vec<f32>, usize)]) -> f32 {
    let surprise = |log: f64| -> f64 {
        let inverse = (-log).exp();
        let of = |(scores, truth): &(Vec<f32>, usize)| {
            let largest = scores.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            let exp = |&score: &f32| (f64::from(score - largest) * inverse).exp();
            let sum: f64 = scores.iter().map(exp).sum();
            sum.ln() - f64::from(scores[*truth] - largest) * inverse
        };
        cases.iter().map(of).sum()
    };
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.05f64.ln(), 20f64.ln());
    for _ in 0..HALVINGS {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if surprise(left) < surprise(right) { high = right } else { low = left }
    }
    ((low + high) / 2.0).exp() as f32
}

/// The lowest confidence from which on answers are right as often as `available`, less the slack. Each answer is its
/// confidence and whether it is right.
fn threshold(mut sure: Vec<(f32, bool)>, available: f64) -> f32 {
    sure.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut right, mut kept) = (0, None);
    for (at, (confidence, is_right)) in sure.iter().enumerate() {
        right += usize::from(*is_right);
        // Keeps or holds back equal confidences together.
        let is_last = sure.get(at + 1).is_none_or(|next| next.0 < *confidence);
        if is_last && right as f64 >= (available - SLACK) * (at + 1) as f64 {
            kept = Some((at + 1, *confidence));
        }
    }
    match kept {
        Some((count, _)) if count == sure.len() => 0.0,
        Some((count, confidence)) if count * 2 >= sure.len() => confidence,
        _ => sure.get(sure.len() / 2).map_or(0.0, |case| case.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::curve::KNOTS;
    use super::*;

    #[test]
    fn confidence_is_the_softmax_of_the_best_class() {
        let check = |values: &[f32], classes, meaning, temperature, expect: Option<f32>| {
            let had =
                Calibration { temperature, ..Calibration::default() }.confidence(values, classes, meaning);
            let same = had.zip(expect).map_or(had == expect, |(had, expect)| (had - expect).abs() < 1e-5);
            assert!(same, "{values:?}: {had:?}, not {expect:?}");
        };
        check(&[0.0, 0.0], 2, Meaning::Logits, 1.0, Some(0.5));
        check(&[3.0f32.ln(), 0.0], 2, Meaning::Logits, 1.0, Some(0.75));
        check(&[2.0 * 3.0f32.ln(), 0.0], 2, Meaning::Logits, 2.0, Some(0.75));
        check(&[0.75, 0.25], 2, Meaning::Probabilities, 1.0, Some(0.75));
        check(&[1.01, -0.01], 2, Meaning::Probabilities, 1.0, Some(1.0));
        check(&[90.0, 0.0, 0.0, 0.0], 2, Meaning::Logits, 1.0, Some(0.5));
        check(&[f32::NAN, 0.0], 2, Meaning::Probabilities, 1.0, Some(0.0));
        check(&[1.0, 2.0], 2, Meaning::Values, 1.0, None);
        check(&[1.0], 1, Meaning::Logits, 1.0, None);
    }

    #[test]
    fn temperature_corrects_an_overconfident_network() {
        for (meaning, scores) in
            [(Meaning::Logits, [9.0, 0.0]), (Meaning::Probabilities, [0.999_876_6, 0.000_123_4])]
        {
            // The scores claim far more than the 70 % that are right.
            let case = |at: usize| Case { scores: &scores, truth: usize::from(at % 10 >= 7) };
            let cases: Vec<Case<'_>> = (0..1000).map(case).collect();
            let fitted = Calibration::fit(&cases, meaning, 0.7);
            let sure = fitted.confidence(&scores, 2, meaning).unwrap();
            assert!((sure - 0.7).abs() < 0.01 && fitted.threshold == 0.0, "{meaning:?} {fitted:?}: {sure}");
            let error = |calibration: Calibration| {
                expected_error(&cases.iter().map(|case| calibration.sure(*case, meaning)).collect::<Vec<_>>())
            };
            let (before, after) = (error(Calibration::default()), error(fitted));
            assert!((before - 0.3).abs() < 0.01 && after < 0.01, "{meaning:?}: {before}, {after}");
        }
    }

    /// Two kinds of answers, as with softened labels: half claim `low` and are less accurate, half claim `high` and are
    /// more accurate.
    fn softened([low, high]: [(f32, usize); 2]) -> Vec<([f32; 2], usize)> {
        let case = |at: usize| {
            let (claimed, right) = if (at / 20).is_multiple_of(2) { low } else { high };
            ([claimed.ln(), (1.0 - claimed).ln()], usize::from(at % 20 / 2 >= right))
        };
        (0..2000).map(case).collect()
    }

    #[test]
    fn curve_corrects_more_than_a_temperature() {
        let answers = softened([(0.7, 5), (0.85, 10)]);
        let cases: Vec<Case<'_>> =
            answers.iter().map(|(scores, truth)| Case { scores, truth: *truth }).collect();
        let fitted = Calibration::fit(&cases, Meaning::Logits, 0.75);
        let sure: Vec<(f32, bool)> = cases.iter().map(|case| fitted.sure(*case, Meaning::Logits)).collect();
        let cooled = Calibration { curve: None, ..fitted };
        let cooled: Vec<(f32, bool)> = cases.iter().map(|case| cooled.sure(*case, Meaning::Logits)).collect();
        let (before, after) = (expected_error(&cooled), expected_error(&sure));
        assert!(before > 0.08 && after < 0.02, "{before}, {after}: {fitted:?}");
        let rises = |at: usize| fitted.curve.unwrap().windows(2).all(|pair| pair[0][at] <= pair[1][at]);
        assert!(rises(0) && rises(1), "{fitted:?}");
    }

    #[test]
    fn curve_is_not_fitted_to_few_answers() {
        let fit = |answers: &[([f32; 2], usize)]| {
            let cases: Vec<Case<'_>> =
                answers.iter().map(|(scores, truth)| Case { scores, truth: *truth }).collect();
            Calibration::fit(&cases, Meaning::Logits, 0.75)
        };
        assert_eq!(fit(&softened([(0.7, 5), (0.85, 10)])[..180]).curve, None);
    }

    #[test]
    fn infinite_scores_do_not_change_the_temperature() {
        let case = |at: usize| Case { scores: &[9.0, 0.0], truth: usize::from(at % 10 >= 7) };
        let mut cases: Vec<Case<'_>> = (0..1000).map(case).collect();
        cases.push(Case { scores: &[0.0, f32::NEG_INFINITY], truth: 1 });
        cases.push(Case { scores: &[0.0, f32::NAN], truth: 0 });
        let fitted = Calibration::fit(&cases, Meaning::Logits, 0.7);
        assert!((fitted.temperature - 10.6).abs() < 0.3, "{fitted:?}");
    }

    #[test]
    fn confidence_of_nan_is_zero_with_a_curve() {
        let curve = Calibration { curve: Some([[0.5, 0.7]; KNOTS]), ..Calibration::default() };
        assert_eq!(curve.confidence(&[f32::NAN, 0.0], 2, Meaning::Logits), Some(0.0));
    }

    #[test]
    fn curve_that_falls_or_leaves_0_to_1_is_a_problem() {
        let curve = |knots: [f32; 2]| {
            let mut curve = [[0.5; 2]; KNOTS];
            curve[KNOTS - 1] = knots;
            Calibration { curve: Some(curve), ..Calibration::default() }.check()
        };
        assert_eq!(curve([0.6, 0.7]), None);
        for wrong in [[0.4, 0.7], [0.6, 0.4], [0.6, 1.1], [0.6, f32::NAN]] {
            assert_eq!(curve(wrong), Some(Problem::Curve), "{wrong:?}");
        }
    }

    #[test]
    fn unusable_cases_give_the_default_calibration() {
        let strange = [Case { scores: &[1.0, 0.0], truth: 7 }];
        assert_eq!(Calibration::fit(&strange, Meaning::Logits, 1.0), Calibration::default());
        let case = [Case { scores: &[1.0, 0.0], truth: 0 }];
        assert_eq!(Calibration::fit(&case, Meaning::Values, 1.0), Calibration::default());
    }

    #[test]
    fn threshold_is_zero_if_answers_are_as_good_as_predictions() {
        let sure = (0..1000).map(|at| (0.9, at % 10 < 7)).collect();
        assert_eq!(threshold(sure, 0.70), 0.0);
    }

    #[test]
    fn threshold_holds_back_unsure_wrong_answers() {
        let sure = (0..400).map(|at| if at % 4 == 0 { (0.62, false) } else { (0.99, true) });
        assert_eq!(threshold(sure.collect(), 1.0), 0.99);
    }

    #[test]
    fn calibration_error_is_zero_if_confidence_is_accuracy() {
        let sure: Vec<(f32, bool)> = (0..100).map(|at| (0.8, at % 5 != 0)).collect();
        assert!(expected_error(&sure) < 1e-6);
        assert_eq!(expected_error(&[]), 0.0);
        assert!((expected_error(&[(1.0, false)]) - 1.0).abs() < 1e-9);
    }
}
