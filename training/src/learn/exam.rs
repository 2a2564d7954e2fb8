//! Exam: reconstructs every single loss of held-out groups with the code that serves, and scores the results.

use burn::tensor::Device;
use parm_encoder::Code;
use parm_parity_models::bundle::{Calibration, Case, Meaning};

use super::{Set, Targets, largest};
use crate::evaluate::reconstruct::{self, Pairs, Reconstruction};
use crate::fit::Grade;
use crate::graph::Real;
use crate::groups::{Groups, encode};
use crate::learn::predictions;
use crate::network::Network;
use crate::{Array, Error};

/// Held-out groups.
pub(crate) struct Exam {
    code: Box<dyn Code>,
    set: Set,
    groups: Groups,
    coded: Vec<Array<f32>>,
    /// The true class of each row, for classifiers.
    truth: Option<Vec<usize>>,
}

/// The result of an exam.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    /// Accuracy of predictions (A_a): the share of right ones; 1 for numbers.
    pub available: f64,
    /// Accuracy of reconstructions (A_d); for numbers, the explained share of their variance.
    pub degraded: f64,
    /// Number of reconstructions.
    pub reconstructions: u64,
    /// The standard error of A_a - A_d over the same rows; `None` unless answers are classes.
    pub gap_error: Option<f64>,
}

impl Exam {
    /// Groups over all of `set`, each row at most once. Classes are judged by the labels, or by the teacher.
    pub(crate) fn new(set: Set, code: Box<dyn Code>, classes: bool, seed: u64) -> Result<Self, Error> {
        let k = code.spec().k;
        let groups = Groups::draw(set.len(), k, seed)?;
        let coded = encode(&*code, &groups, &set.inputs)?;
        let said = || set.outputs.data().chunks_exact(set.values()).map(largest).collect();
        let truth = classes.then(|| set.labels.clone().unwrap_or_else(said));
        Ok(Self { code, set, groups, coded, truth })
    }

    pub(crate) fn set(&self) -> &Set {
        &self.set
    }

    /// The networks' answers to the coded queries.
    fn answers(&self, networks: &[Network]) -> Result<Vec<Array<f32>>, Error> {
        networks.iter().zip(&self.coded).map(|(network, coded)| predictions(network, coded)).collect()
    }

    /// Calls `see` with the group, the row and the reconstruction of every member of every group, as if only that member
    /// were lost.
    fn reconstruct(
        &self,
        answers: &[Array<f32>],
        mut see: impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        let patterns = reconstruct::patterns(self.code.recovery(), 1);
        let see = |one: Reconstruction<'_>| see(one.group, one.row, one.answer);
        reconstruct::each(&*self.code, &self.groups, (&self.set.outputs, answers), &patterns, see)
    }

    /// Scores the networks.
    pub(crate) fn marks(&self, networks: &[Network]) -> Result<Marks, Error> {
        self.judge(&self.answers(networks)?)
    }

    fn judge(&self, answers: &[Array<f32>]) -> Result<Marks, Error> {
        let variance = self.variance().max(f64::MIN_POSITIVE);
        let score = |row: usize, answer: &[f32]| match &self.truth {
            Some(truth) => f64::from(u8::from(largest(answer) == truth[row])),
            None => {
                let off = answer.iter().zip(self.set.output(row)).map(|(a, b)| f64::from(a - b).powi(2));
                1.0 - off.sum::<f64>() / answer.len() as f64 / variance
            }
        };
        let predictions: Vec<f64> = (0..self.set.len()).map(|row| score(row, self.set.output(row))).collect();
        let (mut sum, mut count) = (0.0, 0u64);
        let mut pairs = Pairs::new(self.groups.len());
        self.reconstruct(answers, |group, row, answer| {
            let reconstruction = score(row, answer);
            sum += reconstruction;
            count += 1;
            pairs.add(group, predictions[row], reconstruction);
        })?;
        Ok(Marks {
            available: predictions.iter().sum::<f64>() / predictions.len() as f64,
            degraded: sum / count.max(1) as f64,
            reconstructions: count,
            gap_error: pairs.error().filter(|_| self.truth.is_some()),
        })
    }

    /// The variance of the teacher's outputs.
    fn variance(&self) -> f64 {
        let (values, outputs) = (self.set.values(), self.set.outputs.data());
        let mut means = vec![0.0f64; values];
        let share = 1.0 / self.set.len() as f64;
        outputs.iter().enumerate().for_each(|(at, &value)| means[at % values] += f64::from(value) * share);
        let spread = |(at, &value): (usize, &f32)| (f64::from(value) - means[at % values]).powi(2);
        outputs.iter().enumerate().map(spread).sum::<f64>() / outputs.len() as f64
    }

    /// The score of the networks, and their loss against `rows`, the teacher's outputs in the form of the targets.
    pub(crate) fn grade(
        &self,
        networks: &[Network],
        targets: &Targets,
        rows: &[f32],
    ) -> Result<Grade, Error> {
        let answers = self.answers(networks)?;
        let mut loss = 0.0;
        for (at, answer) in answers.iter().enumerate() {
            let output = Real::upload(answer, &Device::flex()).map_err(crate::fit::fault("the output"))?;
            let one = targets.loss(at, output, rows, &self.groups)?;
            loss += f64::from(one.into_scalar::<f32>());
        }
        Ok(Grade { score: self.judge(&answers)?.degraded, loss: Some(loss) })
    }

    /// Calibrates the confidence of reconstructions of this meaning. Servers withhold reconstructions that are
    /// not finite, so they do not count. `None` unless answers are classes.
    pub(crate) fn calibrate(
        &self,
        networks: &[Network],
        meaning: Meaning,
    ) -> Result<Option<Calibration>, Error> {
        let Some(truth) = &self.truth else { return Ok(None) };
        let mut finite: Vec<(Vec<f32>, usize)> = Vec::new();
        self.reconstruct(&self.answers(networks)?, |_, row, answer| {
            if answer.iter().all(|value| value.is_finite()) {
                finite.push((answer.to_vec(), truth[row]));
            }
        })?;
        // A softmax behind the network's scores changes nothing: its logarithms are the scores, up to a constant.
        let cases: Vec<Case<'_>> =
            finite.iter().map(|(scores, truth)| Case::single(scores, meaning, *truth)).collect();
        let right = (0..self.set.len()).filter(|&row| largest(self.set.output(row)) == truth[row]).count();
        Ok(Some(Calibration::fit(&cases, right as f64 / truth.len() as f64)))
    }
}

#[cfg(test)]
mod tests {
    use parm_encoder::{CodeSpec, Kind};
    use parm_parity_models::bundle::ClassScores;
    use parm_parity_models::onnx::{Builder, Value};

    use super::*;
    use crate::Device as Processor;

    /// The calibration of a network that answers logarithms, for rows of which four in five have the class that is said.
    fn fitted(rows: &[[f32; 2]]) -> Calibration {
        let mut builder = Builder::new("logarithms", 1);
        let x = builder.input(Value::batch_of_f32("x", &[2]));
        builder.node("Log", "y", &[&x]);
        builder.output(Value::batch_of_f32("y", &[2]));
        let network = Network::new(builder.build().unwrap(), Processor::Cpu).unwrap();
        let said = (0..rows.len()).flat_map(|row| if row % 5 < 4 { [1.0, 0.0] } else { [0.0, 1.0] });
        let array = |values: Vec<f32>| Array::new(vec![rows.len(), 2], values).unwrap();
        let set = Set { inputs: array(rows.concat()), outputs: array(said.collect()), labels: None };
        let code = CodeSpec::new(Kind::Sum, 1, 1).build().unwrap();
        Exam::new(set, code, true, 3).unwrap().calibrate(&[network], Meaning::Logits).unwrap().unwrap()
    }

    #[test]
    fn reconstructions_that_servers_withhold_are_not_fitted() {
        let finite = vec![[5.0, 1.0]; 400];
        // Logarithms of negative numbers are not numbers.
        let withheld = [finite.as_slice(), &[[-5.0, 1.0]; 200]].concat();
        let scores = [5f32.ln(), 0.0];
        let confidence = |rows: &[[f32; 2]]| {
            fitted(rows).confidence(ClassScores::new(&scores, 2, Meaning::Logits)).unwrap()
        };
        let (alone, both) = (confidence(&finite), confidence(&withheld));
        assert!((alone - 0.8).abs() < 0.02 && (alone - both).abs() < 1e-3, "{alone} and {both}");
    }
}
