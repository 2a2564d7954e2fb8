//! Compares codes on one deployed model and one data set: runs the models, drops predictions, and judges the
//! reconstructions.

use parm_encoder::{Code, Set};
use parm_parity_models::bundle::{Calibration, ClassScores, Meaning, expected_error};

use super::metric::score;
use super::reconstruct::{Pairs, Reconstruction, each, patterns};
use super::{Degraded, Metric, Overall, Report, Truth, constant_answer};
use crate::data::Samples;
use crate::groups::{Groups, encode, row_len};
use crate::{Array, Error};

/// A model that returns its first output for rows, wherever it runs.
pub type Model<'a> = dyn Fn(&Array<f32>) -> Result<Array<f32>, Error> + 'a;

/// Fractions of unavailable predictions for A_o.
const UNAVAILABLE: [f64; 5] = [0.0, 0.01, 0.05, 0.1, 0.2];
/// Groups per encoding step: bounds the memory for any data set.
const GROUPS: usize = 256;

/// A deployed model on its data.
pub struct Bench<'a> {
    deployed: &'a Model<'a>,
    inputs: &'a Array<f32>,
    outputs: Array<f32>,
    truth: Truth,
    rules: Rules,
    backup: Option<Array<f32>>,
}

/// The rules of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The score of an answer.
    pub metric: Metric,
    /// The meaning of the deployed model's outputs.
    pub meaning: Meaning,
    /// Seed of the groups.
    pub seed: u64,
}

/// A code in the comparison.
#[derive(Clone, Copy)]
pub struct Contender<'a> {
    /// The code.
    pub code: &'a dyn Code,
    /// Its parity models; empty if the deployed model answers the coded queries.
    pub models: &'a [&'a Model<'a>],
    /// The calibration of its reconstructions.
    pub calibration: Calibration,
    /// The order of queries in a group.
    pub order: Order,
}

/// The order of queries in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Random.
    #[default]
    Drawn,
    /// Along a short path through them, which helps codes that interpolate along a curve.
    Path,
}

impl<'a> Bench<'a> {
    /// Runs the deployed model on all rows. Rows without labels are judged by agreement with it.
    pub fn new(deployed: &'a Model<'a>, samples: &'a Samples, rules: Rules) -> Result<Self, Error> {
        let outputs = deployed(&samples.inputs)?;
        let truth = Truth::of(samples, samples.labels.is_some(), &outputs, rules.metric);
        Self::with(deployed, &samples.inputs, outputs, truth, rules)
    }

    /// Compares with these outputs of the deployed model and this truth.
    pub(crate) fn with(
        deployed: &'a Model<'a>,
        inputs: &'a Array<f32>,
        outputs: Array<f32>,
        truth: Truth,
        rules: Rules,
    ) -> Result<Self, Error> {
        truth.check(rules.metric, &outputs)?;
        Ok(Self { deployed, inputs, outputs, truth, rules, backup: None })
    }

    /// Adds a backup model to the comparison.
    pub fn with_backup(mut self, backup: &Model<'_>) -> Result<Self, Error> {
        self.backup = Some(backup(self.inputs)?);
        Ok(self)
    }

    /// Judges a code: every loss of one prediction, then of two, up to r, in every group.
    pub fn judge(&self, contender: &Contender<'_>) -> Result<Report, Error> {
        let Contender { code, models, order, .. } = *contender;
        let mut groups = Groups::draw(self.outputs.shape()[0], code.spec().k, self.rules.seed)?;
        if order == Order::Path {
            groups = groups.along_paths(self.inputs);
        }
        let parities = self.answers(code, &groups, models)?;
        let (recovery, metric) = (code.recovery(), self.rules.metric);
        let deployed = score(metric, &self.outputs, &self.truth)?;
        let trial = Trial { bench: self, contender, groups: &groups, parities: &parities };
        let systematic = recovery.is_systematic();
        let available = if systematic { deployed } else { trial.judge(0, &[Set::EMPTY])?.0.score };
        let (mut degraded, mut calibration_error) = (Vec::new(), None);
        for lost in 1..=code.spec().r.min(recovery.k) {
            let patterns = patterns(recovery, lost);
            if patterns.is_empty() {
                break;
            }
            let (scores, surest) = trial.judge(lost, &patterns)?;
            degraded.push(scores);
            // Confidence belongs to the predicted class, so it is compared with top-1 accuracy.
            if lost == 1 && metric == Metric::TOP_1 && !surest.is_empty() {
                calibration_error = Some(expected_error(&surest));
            }
        }
        let mut report = Report {
            code: code.spec().clone(),
            metric,
            rows: self.outputs.shape()[0],
            groups: groups.len(),
            systematic,
            available,
            deployed,
            degraded,
            overall: Vec::new(),
            constant_answer: constant_answer(metric, &self.truth),
            backup: self.backup.as_ref().map(|outputs| score(metric, outputs, &self.truth)).transpose()?,
            calibration_error,
        };
        let overall = |&unavailable: &f64| Overall { unavailable, score: report.overall_at(unavailable) };
        report.overall = UNAVAILABLE.iter().map(overall).collect();
        Ok(report)
    }

    /// The outputs for all coded queries, `[groups, ..]` for each coded query of a group.
    fn answers(
        &self,
        code: &dyn Code,
        groups: &Groups,
        models: &[&Model<'_>],
    ) -> Result<Vec<Array<f32>>, Error> {
        let coded = code.recovery().parities;
        let expected = if code.spec().kind.has_parity_models() { coded } else { 0 };
        if models.len() != expected {
            return Err(Error::Models { kind: code.spec().kind, expected, actual: models.len() });
        }
        let mut shapes = vec![Vec::new(); coded];
        let mut answers = vec![Vec::new(); coded];
        for part in groups.parts(GROUPS) {
            for (at, queries) in encode(code, &part, self.inputs)?.iter().enumerate() {
                let model = models.get(at).copied().unwrap_or(self.deployed);
                let output = model(queries)?;
                shapes[at] = output.shape().to_vec();
                answers[at].extend(output.into_data());
            }
        }
        let width = row_len(&self.outputs) * code.output_scale();
        let arrays = shapes.into_iter().zip(answers).map(|(mut shape, data)| {
            shape[0] = groups.len();
            let (what, expected, actual) = ("parity outputs", groups.len(), data.len());
            let array = Array::new(shape, data).ok_or(Error::Rows { what, expected, actual })?;
            match row_len(&array) {
                actual if actual != width => Err(Error::Width { what, expected: width, actual }),
                _ => Ok(array),
            }
        });
        arrays.collect()
    }
}

/// A contender with its groups and the outputs for their coded queries.
struct Trial<'a> {
    bench: &'a Bench<'a>,
    contender: &'a Contender<'a>,
    groups: &'a Groups,
    parities: &'a [Array<f32>],
}

impl Trial<'_> {
    /// Judges every reconstruction after `lost` losses. Returns their scores, and the confidence of each with whether it is
    /// right, unless outputs are no scores of classes.
    fn judge(&self, lost: usize, patterns: &[Set]) -> Result<(Degraded, Vec<(f32, bool)>), Error> {
        let Bench { outputs, truth, rules: Rules { metric, meaning, .. }, .. } = self.bench;
        let Contender { code, calibration, .. } = self.contender;
        let mut slots = vec![Mean::default(); code.recovery().k];
        let (mut all, mut agreement) = (Mean::default(), Mean::default());
        let mut pairs = Pairs::new(self.groups.len());
        let mut surest = Vec::new();
        let predictions = outputs.data().chunks_exact(row_len(outputs).max(1)).enumerate();
        let predictions: Vec<f64> =
            predictions.map(|(row, answer)| truth.score(*metric, row, answer)).collect();
        let teacher = Truth::deployed(outputs, *metric);
        let by_teacher = if matches!(metric, Metric::Top(_)) { Metric::TOP_1 } else { *metric };
        each(*code, self.groups, (outputs, self.parities), patterns, |one| {
            let Reconstruction { group, slot, row, answer } = one;
            let score = truth.score(*metric, row, answer);
            if meaning.has_classes() {
                let sure = calibration.confidence(ClassScores::new(answer, answer.len(), *meaning));
                surest.push((sure.unwrap_or(0.0), score > 0.5));
            }
            slots[slot].add(score);
            all.add(score);
            pairs.add(group, predictions[row], score);
            agreement.add(teacher.score(by_teacher, row, answer));
        })?;
        let degraded = Degraded {
            lost,
            score: all.mean(),
            agreement: agreement.mean(),
            by_slot: slots.iter().map(|slot| slot.mean()).collect(),
            patterns: patterns.len(),
            reconstructions: all.count,
            gap_error: pairs.error(),
        };
        Ok((degraded, surest))
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

    fn mean(self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}
