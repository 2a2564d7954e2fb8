//! Calibrates the confidence of approximate answers, and the threshold below which they are held back.
//!
//! Networks are overconfident. A temperature, by which scores are divided before the softmax, corrects most of that;
//! [`Calibration::fit`] chooses the one with the smallest negative log-likelihood on held-out rows. Networks that
//! learned from softened labels are underconfident if right and overconfident if wrong, which no temperature corrects.
//! For them a curve maps confidence to observed accuracy. The threshold is the lowest confidence from which on
//! approximate answers are about as accurate as predictions; it holds back at most half of them.
//!
//! The least confident position of an answer counts, in the fit as in the server. The temperature is the one at which this
//! confidence fits best: the classes of single positions would leave answers with several positions overconfident.

use std::borrow::Cow;

use half::{bf16, f16};
use parm_protocol::{DataType, Tensor};
use serde::{Deserialize, Serialize};

use super::curve::{self, Curve, along};
use super::{Meaning, best};

/// The smallest probability whose logarithm is used; the outputs of a decoder may be slightly negative.
const UNLIKELY: f32 = 1e-30;
/// The amount by which answers that are not held back may be less accurate than predictions.
const SLACK: f64 = 0.005;
/// Steps of the search for the temperature, after which it is known to 0.05 %.
const STEPS: usize = 20;
/// The most scores from which a temperature is searched; answers beyond are left out at even distances.
const MOST_SCORES: usize = 1 << 23;
/// A confidence is at least this far from 0 and 1 when its logarithm is used.
const SURELY: f64 = 1e-6;
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

impl Calibration {
    /// Fits a calibration to answers whose truth is known. `available` is the accuracy of predictions. Returns the
    /// default if no answer has scores of classes.
    pub fn fit(cases: &[Case<'_>], available: f64) -> Self {
        let scores: usize = cases.iter().flat_map(|case| &case.answer).map(|output| output.len()).sum();
        let few = cases.iter().step_by(scores.div_ceil(MOST_SCORES).max(1));
        let Some(temperature) = temperature(few) else { return Self::default() };
        let cooled = Self { temperature, ..Self::default() };
        let sure: Vec<(f32, bool)> = cases.iter().map(|case| cooled.sure(case)).collect();
        let fitted = Self { curve: curve::fit(&sure), ..cooled };
        let sure = cases.iter().map(|case| fitted.sure(case)).collect();
        Self { threshold: threshold(sure, available).clamp(0.0, 1.0), ..fitted }
    }

    pub(super) fn check(&self) -> Option<String> {
        let Self { temperature, threshold, curve } = *self;
        let is_share = |value: &f32| (0.0..=1.0).contains(value);
        if !(temperature > 0.0 && temperature.is_finite() && is_share(&threshold)) {
            return Some(format!(
                "invalid calibration, temperature {temperature} and threshold {threshold}: give one above 0 and one in 0..=1"
            ));
        }
        let problem =
            "invalid curve of the calibration: pairs must rise and be in 0..=1: omit it, or calibrate again";
        curve.is_some_and(|curve| !curve::is_sound(&curve)).then(|| problem.into())
    }

    /// The confidence of an answer: that of its least confident position in any of the outputs. `None` without scores of
    /// classes; 0 if they are not numbers.
    pub fn confidence<'a>(&self, answer: impl IntoIterator<Item = ClassScores<'a>>) -> Option<f32> {
        let least = |output: ClassScores<'a>| {
            let all = output.positions().map(|scores| self.of_position(scores, output.meaning()));
            all.min_by(f32::total_cmp)
        };
        answer.into_iter().filter_map(least).min_by(f32::total_cmp)
    }

    fn of_position(&self, scores: &[f32], meaning: Meaning) -> f32 {
        let logits = || logits(scores, meaning).map(|logit| logit / self.temperature);
        let largest = logits().fold(f32::NEG_INFINITY, f32::max);
        let sure = 1.0 / logits().map(|logit| (logit - largest).exp()).sum::<f32>();
        match sure.is_finite() {
            true => self.curve.map_or(sure, |curve| along(&curve, sure)),
            false => 0.0,
        }
    }

    /// The confidence of an answer, and whether it is right.
    pub fn sure(&self, case: &Case<'_>) -> (f32, bool) {
        (self.confidence(case.answer.iter().copied()).unwrap_or(0.0), case.is_right())
    }
}

/// The positions of an answer, with the meaning of their scores.
fn positions<'a>(answer: &[ClassScores<'a>]) -> impl Iterator<Item = (&'a [f32], Meaning)> {
    answer.iter().flat_map(|output| output.positions().map(|scores| (scores, output.meaning())))
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

/// The temperature at which the confidence of answers has the smallest negative log-likelihood. Ignores answers with a true
/// class that has no finite score.
fn temperature<'a>(cases: impl Iterator<Item = &'a Case<'a>>) -> Option<f32> {
    let of = |case: &'a Case<'a>| {
        let below = positions(&case.answer).map(|(scores, meaning)| below_largest(scores, meaning));
        (below.collect::<Vec<_>>(), case.is_right())
    };
    let known: Vec<(Vec<Vec<f32>>, bool)> = cases.filter(|case| case.is_known()).map(of).collect();
    let surprise = |inverse: f64| -> f64 {
        let sure = |below: &Vec<f32>| {
            let sure = below.iter().map(|logit| (logit * inverse as f32).exp()).sum::<f32>().recip();
            if sure.is_finite() { sure } else { 0.0 }
        };
        let of = |(positions, is_right): &(Vec<Vec<f32>>, bool)| {
            let sure = positions.iter().map(sure).min_by(f32::total_cmp).unwrap_or(0.0);
            let sure = f64::from(sure).clamp(SURELY, 1.0 - SURELY);
            -(if *is_right { sure } else { 1.0 - sure }).ln()
        };
        known.iter().map(of).sum()
    };
    (!known.is_empty()).then(|| coolest(surprise))
}

/// The logits of a position, less the largest one. Logarithms take most of the time of a fit.
fn below_largest(scores: &[f32], meaning: Meaning) -> Vec<f32> {
    let mut below: Vec<f32> = logits(scores, meaning).collect();
    let largest = below.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    below.iter_mut().for_each(|logit| *logit -= largest);
    below
}

/// The temperature of the smallest surprise, by golden-section search over its logarithm. `surprise` takes the inverse.
fn coolest(surprise: impl Fn(f64) -> f64) -> f32 {
    let surprise = |log: f64| surprise((-log).exp());
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.05f64.ln(), 20f64.ln());
    let (mut left, mut right) = (high - golden * (high - low), low + golden * (high - low));
    let (mut at_left, mut at_right) = (surprise(left), surprise(right));
    for _ in 0..STEPS {
        if at_left < at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - golden * (high - low);
            at_left = surprise(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + golden * (high - low);
            at_right = surprise(right);
        }
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

    /// Whether there are positions, and each of them has a finite score of its true class.
    fn is_known(&self) -> bool {
        let mut pairs = positions(&self.answer).zip(&self.truth).peekable();
        let has_some = pairs.peek().is_some();
        has_some
            && pairs.all(|((scores, _), &truth)| scores.get(truth).is_some_and(|score| score.is_finite()))
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
    use super::super::curve::KNOTS;
    use super::*;

    #[test]
    fn confidence_is_the_softmax_of_the_best_class() {
        let check = |values: &[f32], classes, meaning, temperature, expect: Option<f32>| {
            let scores = ClassScores::new(values, classes, meaning);
            let had = Calibration { temperature, ..Calibration::default() }.confidence(scores);
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
        let curve = Calibration { curve: Some([[0.5, 0.7]; KNOTS]), ..Calibration::default() };
        let nan = ClassScores::new(&[f32::NAN, 0.0], 2, Meaning::Logits);
        assert_eq!(curve.confidence(nan), Some(0.0), "whatever the curve says");
    }

    #[test]
    fn temperature_corrects_an_overconfident_network() {
        for (meaning, scores) in
            [(Meaning::Logits, [9.0, 0.0]), (Meaning::Probabilities, [0.999_876_6, 0.000_123_4])]
        {
            // The scores claim far more than the 70 % that are right.
            let case = |at: usize| Case::single(&scores, meaning, usize::from(at % 10 >= 7));
            let cases: Vec<Case<'_>> = (0..1000).map(case).collect();
            let fitted = Calibration::fit(&cases, 0.7);
            let sure = fitted.confidence(ClassScores::new(&scores, 2, meaning)).unwrap();
            assert!((sure - 0.7).abs() < 0.01 && fitted.threshold == 0.0, "{meaning:?} {fitted:?}: {sure}");
            let error = |calibration: Calibration| {
                expected_error(&cases.iter().map(|case| calibration.sure(case)).collect::<Vec<_>>())
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
            answers.iter().map(|(scores, truth)| Case::single(scores, Meaning::Logits, *truth)).collect();
        let fitted = Calibration::fit(&cases, 0.75);
        let sure: Vec<(f32, bool)> = cases.iter().map(|case| fitted.sure(case)).collect();
        let cooled = Calibration { curve: None, ..fitted };
        let cooled: Vec<(f32, bool)> = cases.iter().map(|case| cooled.sure(case)).collect();
        let (before, after) = (expected_error(&cooled), expected_error(&sure));
        assert!(before > 0.08 && after < 0.02, "{before}, {after}: {fitted:?}");
        let rises = |at: usize| fitted.curve.unwrap().windows(2).all(|pair| pair[0][at] <= pair[1][at]);
        assert!(rises(0) && rises(1), "{fitted:?}");
    }

    #[test]
    fn infinite_scores_do_not_change_the_temperature() {
        let logits = |scores, truth| Case::single(scores, Meaning::Logits, truth);
        let mut cases: Vec<Case<'_>> =
            (0..1000).map(|at| logits(&[9.0, 0.0], usize::from(at % 10 >= 7))).collect();
        cases.push(logits(&[0.0, f32::NEG_INFINITY], 1));
        cases.push(logits(&[0.0, f32::NAN], 0));
        let fitted = Calibration::fit(&cases, 0.7);
        assert!((fitted.temperature - 10.6).abs() < 0.3, "{fitted:?}");
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
            assert!(curve(wrong).is_some_and(|said| said.starts_with("invalid curve")), "{wrong:?}");
        }
    }

    #[test]
    fn unusable_cases_give_the_default_calibration() {
        let strange = [Case::single(&[1.0, 0.0], Meaning::Logits, 7)];
        assert_eq!(Calibration::fit(&strange, 1.0), Calibration::default());
        let case = [Case::single(&[1.0, 0.0], Meaning::Values, 0)];
        assert_eq!(Calibration::fit(&case, 1.0), Calibration::default());
    }

    #[test]
    fn least_confident_position_of_any_output_counts() {
        let y = [9.0, 0.0, 3.0f32.ln(), 0.0];
        let confidence = |z: &[f32]| {
            let outputs =
                [ClassScores::new(&y, 2, Meaning::Logits), ClassScores::new(z, 2, Meaning::Probabilities)];
            Calibration::default().confidence(outputs.into_iter().flatten()).unwrap()
        };
        assert!((confidence(&[0.1, 0.9]) - 0.75).abs() < 1e-5, "the second position of y");
        assert!((confidence(&[0.4, 0.6]) - 0.6).abs() < 1e-5, "z");
    }

    #[test]
    fn temperature_of_several_positions_is_that_of_whole_answers() {
        // Each position claims 0.9 and is right on that share, so all four are right on two thirds of the answers.
        let scores = [9.0f32.ln(), 0.0].repeat(4);
        let case = |at: usize| {
            let wrong = |position: u32| usize::from((at / 10usize.pow(position)).is_multiple_of(10));
            let answer = ClassScores::new(&scores, 2, Meaning::Logits).into_iter().collect();
            Case { answer, truth: (0..4).map(wrong).collect() }
        };
        let cases: Vec<Case<'_>> = (0..10_000).map(case).collect();
        let sure = Calibration::fit(&cases, 0.0).confidence(cases[0].answer.iter().copied()).unwrap();
        assert!((sure - 0.9f32.powi(4)).abs() < 0.02, "{sure}");
    }

    #[test]
    fn threshold_holds_back_unsure_wrong_answers_only() {
        let good = (0..1000).map(|at| (0.9, at % 10 < 7)).collect();
        assert_eq!(threshold(good, 0.70), 0.0);
        let mixed = (0..400).map(|at| if at % 4 == 0 { (0.62, false) } else { (0.99, true) });
        assert_eq!(threshold(mixed.collect(), 1.0), 0.99);
    }

    #[test]
    fn calibration_error_is_zero_if_confidence_is_accuracy() {
        let sure: Vec<(f32, bool)> = (0..100).map(|at| (0.8, at % 5 != 0)).collect();
        assert!(expected_error(&sure) < 1e-6);
        assert_eq!(expected_error(&[]), 0.0);
        assert!((expected_error(&[(1.0, false)]) - 1.0).abs() < 1e-9);
    }

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
