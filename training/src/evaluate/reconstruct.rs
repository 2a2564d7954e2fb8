//! Drops predictions and judges the reconstructions.

use parm_encoder::{Code, Received, Set, Workspace};
use parm_parity_models::bundle::expected_error;

use super::losses::{Lost, arrived, patterns};
use super::pairs::Pairs;
use super::{Degraded, Evaluation, Metric, Truth};
use crate::groups::{Groups, row_len};
use crate::{Array, Error};

/// The results over all losses.
pub(super) struct Outcomes {
    /// The mean score of a non-systematic code without losses; 0 for systematic ones.
    pub(super) undisturbed: f64,
    /// Scores for one loss, two losses, and so on.
    pub(super) degraded: Vec<Degraded>,
    /// The mean distance between confidence and accuracy, over the reconstructions of single losses.
    pub(super) calibration_error: Option<f64>,
}

pub(super) fn outcomes(evaluation: &Evaluation<'_>) -> Result<Outcomes, Error> {
    check(evaluation)?;
    let recovery = evaluation.code.recovery();
    let mut bench = Judge::new(evaluation);
    let undisturbed = if recovery.is_systematic() { 0.0 } else { bench.judge(0, &[Set::EMPTY])?.score };
    bench.surest.clear();
    let mut degraded = Vec::new();
    let mut calibration_error = None;
    for lost in 1..=evaluation.code.spec().r.min(recovery.k) {
        let patterns = patterns(recovery, lost);
        if patterns.is_empty() {
            break;
        }
        degraded.push(bench.judge(lost, &patterns)?);
        if lost == 1 {
            calibration_error = calibration(evaluation.metric, &std::mem::take(&mut bench.surest));
        }
    }
    Ok(Outcomes { undisturbed, degraded, calibration_error })
}

/// Confidence belongs to the predicted class, so it is compared with top-1 accuracy.
fn calibration(metric: Metric, surest: &[(f32, f64)]) -> Option<f64> {
    let is_known = metric == Metric::TOP_1 && !surest.is_empty();
    is_known.then(|| {
        expected_error(&surest.iter().map(|(sure, score)| (*sure, *score > 0.5)).collect::<Vec<_>>())
    })
}

fn check(evaluation: &Evaluation<'_>) -> Result<(), Error> {
    let Evaluation { code, groups, deployed, parities, .. } = *evaluation;
    let (recovery, width) = (code.recovery(), row_len(deployed));
    if groups.k() != recovery.k {
        return Err(Error::GroupSize { groups: groups.k(), code: recovery.k });
    }
    if parities.len() != recovery.parities {
        return Err(Error::Parities { expected: recovery.parities, actual: parities.len() });
    }
    let rows = |array: &Array<f32>| array.shape().first().copied().unwrap_or(0);
    let last = groups.iter().flatten().max().copied().unwrap_or(0);
    if last >= rows(deployed) {
        return Err(Error::Rows { what: "deployed outputs", expected: last + 1, actual: rows(deployed) });
    }
    for parity in parities {
        let (expected, actual) = (groups.len(), rows(parity));
        if expected != actual {
            return Err(Error::Rows { what: "parity outputs", expected, actual });
        }
        let (expected, actual) = (width * code.output_scale(), row_len(parity));
        if expected != actual {
            return Err(Error::Width { what: "parity outputs", expected, actual });
        }
    }
    Ok(())
}

/// A reconstruction of a lost prediction.
pub(crate) struct Reconstruction<'a> {
    /// The number of its group.
    pub(crate) group: usize,
    pub(crate) slot: usize,
    /// The row that it answers.
    pub(crate) row: usize,
    pub(crate) answer: &'a [f32],
}

/// Calls `see` with every reconstruction in every group, for each of these patterns of losses. `parities` are the
/// outputs for the coded queries, `[groups, ..]` each.
pub(crate) fn each(
    code: &dyn Code,
    groups: &Groups,
    (deployed, parities): (&Array<f32>, &[Array<f32>]),
    patterns: &[Lost],
    mut see: impl FnMut(Reconstruction<'_>),
) -> Result<(), Error> {
    let width = row_len(deployed);
    let (mut workspace, mut answer) = (Workspace::default(), vec![0.0; width]);
    for &pattern in patterns {
        let arrived = arrived(code.recovery(), pattern);
        let lost = arrived.members.without(arrived.predictions);
        for (at, group) in groups.iter().enumerate() {
            let prediction = |(slot, &row): (usize, &usize)| {
                arrived.predictions.contains(slot).then(|| &deployed.data()[row * width..][..width])
            };
            let predictions: Vec<Option<&[f32]>> = group.iter().enumerate().map(prediction).collect();
            let outputs = parities.iter().enumerate().map(|(index, parity)| {
                let width = row_len(parity);
                arrived.parities.contains(index).then(|| &parity.data()[at * width..][..width])
            });
            let outputs: Vec<Option<&[f32]>> = outputs.collect();
            for slot in lost.iter() {
                let received =
                    Received { members: arrived.members, predictions: &predictions, parities: &outputs };
                code.decode(received, slot, &mut answer, &mut workspace)?;
                see(Reconstruction { group: at, slot, row: group[slot], answer: &answer });
            }
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
    /// Confidence and score of reconstructions.
    surest: Vec<(f32, f64)>,
}

impl<'a> Judge<'a> {
    fn new(evaluation: &'a Evaluation<'a>) -> Self {
        let Evaluation { deployed, truth, metric, .. } = *evaluation;
        let width = row_len(deployed);
        let predictions = deployed.data().chunks_exact(width.max(1)).enumerate();
        let predictions = predictions.map(|(row, answer)| truth.score(metric, row, answer)).collect();
        Self { evaluation, teacher: Truth::deployed(deployed, metric), predictions, surest: Vec::new() }
    }

    /// Judges every reconstruction after `lost` losses.
    fn judge(&mut self, lost: usize, patterns: &[Set]) -> Result<Degraded, Error> {
        let Evaluation { code, groups, deployed, parities, truth, metric, confidence, .. } = *self.evaluation;
        let mut slots = vec![Mean::default(); code.recovery().k];
        let mut agreement = Mean::default();
        let mut pairs = Pairs::new(groups.len());
        let by_teacher = if matches!(metric, Metric::Top(_)) { Metric::TOP_1 } else { metric };
        each(code, groups, (deployed, parities), patterns, |Reconstruction { group, slot, row, answer }| {
            let score = truth.score(metric, row, answer);
            self.surest.extend(confidence.map(|confidence| (confidence.measure(answer), score)));
            slots[slot].add(score);
            pairs.add(group, self.predictions[row], score);
            agreement.add(self.teacher.score(by_teacher, row, answer));
        })?;
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
