//! Drops predictions and judges the reconstructions.

use parm_encoder::{Received, Set, Workspace};
use parm_parity_models::bundle::expected_error;

use super::confidence::{self, Kept};
use super::groups::row_len;
use super::losses::{arrived, patterns};
use super::pairs::Pairs;
use super::{Degraded, Evaluation, Metric, Mismatch, Truth};
use crate::Array;

/// The results over all losses.
pub(super) struct Outcomes {
    /// The mean score of a non-systematic code without losses; 0 for systematic ones.
    pub(super) undisturbed: f64,
    /// Scores for one loss, two losses, and so on.
    pub(super) degraded: Vec<Degraded>,
    /// Over the reconstructions of single losses.
    pub(super) confidence: Vec<Kept>,
    /// The mean distance between confidence and accuracy.
    pub(super) calibration_error: Option<f64>,
}

pub(super) fn outcomes(evaluation: &Evaluation<'_>) -> Result<Outcomes, Mismatch> {
    check(evaluation)?;
    let recovery = evaluation.code.recovery();
    let mut bench = Judge::new(evaluation);
    let undisturbed = if recovery.is_systematic() { 0.0 } else { bench.judge(0, &[Set::EMPTY])?.score };
    bench.surest.clear();
    let mut degraded = Vec::new();
    let (mut confidence, mut calibration_error) = (Vec::new(), None);
    for lost in 1..=evaluation.code.spec().r.min(recovery.k) {
        let patterns = patterns(recovery, lost);
        if patterns.is_empty() {
            break;
        }
        degraded.push(bench.judge(lost, &patterns)?);
        if lost == 1 {
            let surest = std::mem::take(&mut bench.surest);
            calibration_error = calibration(evaluation.metric, &surest);
            confidence = confidence::curve(surest);
        }
    }
    Ok(Outcomes { undisturbed, degraded, confidence, calibration_error })
}

/// Confidence belongs to the predicted class, so it is compared with top-1 accuracy.
fn calibration(metric: Metric, surest: &[(f32, f64)]) -> Option<f64> {
    let is_known = metric == Metric::TOP_1 && !surest.is_empty();
    is_known.then(|| {
        expected_error(&surest.iter().map(|(sure, score)| (*sure, *score > 0.5)).collect::<Vec<_>>())
    })
}

fn check(evaluation: &Evaluation<'_>) -> Result<(), Mismatch> {
    let Evaluation { code, groups, deployed, parities, .. } = *evaluation;
    let (recovery, width) = (code.recovery(), row_len(deployed));
    if groups.k() != recovery.k {
        return Err(Mismatch::GroupSize { groups: groups.k(), code: recovery.k });
    }
    if parities.len() != recovery.parities {
        return Err(Mismatch::Parities { expected: recovery.parities, actual: parities.len() });
    }
    let rows = |array: &Array<f32>| array.shape().first().copied().unwrap_or(0);
    let last = groups.iter().flatten().max().copied().unwrap_or(0);
    if last >= rows(deployed) {
        return Err(Mismatch::Rows { what: "deployed outputs", expected: last + 1, actual: rows(deployed) });
    }
    for parity in parities {
        let (expected, actual) = (groups.len(), rows(parity));
        if expected != actual {
            return Err(Mismatch::Rows { what: "parity outputs", expected, actual });
        }
        let (expected, actual) = (width * code.output_scale(), row_len(parity));
        if expected != actual {
            return Err(Mismatch::Width { what: "parity outputs", expected, actual });
        }
    }
    Ok(())
}

/// The evaluation with values that every pattern needs.
struct Judge<'a> {
    evaluation: &'a Evaluation<'a>,
    /// The deployed model's answers as the truth.
    teacher: Truth,
    /// The score of each prediction.
    predictions: Vec<f64>,
    width: usize,
    workspace: Workspace,
    /// Confidence and score of reconstructions.
    surest: Vec<(f32, f64)>,
}

impl<'a> Judge<'a> {
    fn new(evaluation: &'a Evaluation<'a>) -> Self {
        let teacher = match evaluation.metric {
            Metric::Top(_) => Metric::TOP_1,
            other => other,
        };
        let width = row_len(evaluation.deployed);
        let rows = evaluation.deployed.data().chunks_exact(width.max(1)).enumerate();
        let score = |(row, answer): (usize, &[f32])| evaluation.truth.score(evaluation.metric, row, answer);
        Self {
            evaluation,
            predictions: rows.map(score).collect(),
            teacher: Truth::deployed(evaluation.deployed, teacher),
            width,
            workspace: Workspace::new(),
            surest: Vec::new(),
        }
    }

    /// The mean score over all groups and patterns. Patterns are the outer loop, since the decoding matrix of some
    /// codes depends on them.
    fn judge(&mut self, lost: usize, patterns: &[Set]) -> Result<Degraded, Mismatch> {
        let recovery = self.evaluation.code.recovery();
        let mut slots = vec![Mean::default(); recovery.k];
        let mut agreement = Mean::default();
        let mut pairs = Pairs::new(self.evaluation.groups.len());
        for &pattern in patterns {
            let arrived = arrived(recovery, pattern);
            let asked = arrived.members.without(arrived.predictions);
            for (at, group) in self.evaluation.groups.iter().enumerate() {
                let (predictions, parities) = self.received(at, group, arrived.predictions, arrived.parities);
                for slot in asked.iter() {
                    let received =
                        Received { members: arrived.members, predictions: &predictions, parities: &parities };
                    let mut answer = vec![0.0; self.width];
                    self.evaluation.code.decode(received, slot, &mut answer, &mut self.workspace)?;
                    let (score, agrees) = self.score(group[slot], &answer);
                    slots[slot].add(score);
                    pairs.add(at, self.predictions[group[slot]], score);
                    agreement.add(agrees);
                }
            }
        }
        let all = slots.iter().fold(Mean::default(), |all, slot| all.with(*slot));
        Ok(Degraded {
            lost,
            score: all.mean(),
            agreement: agreement.mean(),
            by_slot: slots.iter().map(|slot| slot.mean()).collect(),
            patterns: patterns.len(),
            reconstructions: all.count,
            gap_error: pairs.error(),
        })
    }

    #[allow(clippy::type_complexity)] // two lists of what arrived
    fn received(
        &self,
        at: usize,
        group: &[usize],
        predictions: Set,
        parities: Set,
    ) -> (Vec<Option<&'a [f32]>>, Vec<Option<&'a [f32]>>) {
        let Evaluation { deployed, parities: outputs, .. } = *self.evaluation;
        let of = |array: &'a Array<f32>, row: usize, width: usize| &array.data()[row * width..][..width];
        let slots = group.iter().enumerate();
        let predictions =
            slots.map(|(slot, &row)| predictions.contains(slot).then(|| of(deployed, row, self.width)));
        let outputs = outputs.iter().enumerate();
        let outputs =
            outputs.map(|(index, output)| parities.contains(index).then(|| of(output, at, row_len(output))));
        (predictions.collect(), outputs.collect())
    }

    fn score(&mut self, row: usize, answer: &[f32]) -> (f64, f64) {
        let Evaluation { truth, metric, confidence, .. } = *self.evaluation;
        let score = truth.score(metric, row, answer);
        if let Some(confidence) = confidence {
            self.surest.push((confidence.measure(answer), score));
        }
        let metric = if matches!(metric, Metric::Top(_)) { Metric::TOP_1 } else { metric };
        (score, self.teacher.score(metric, row, answer))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn with(self, other: Mean) -> Mean {
        Mean { sum: self.sum + other.sum, count: self.count + other.count }
    }

    fn mean(self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}
