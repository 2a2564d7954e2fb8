//! Targets of the networks' outputs for a group, and losses between both, computed on the device.
//!
//! Outputs and targets are `[groups, slots, values]`. A weight per slot (zero for blank ones) makes the sum of the
//! slots' losses a mean over the others.

use burn::tensor::{Device, Tensor, TensorData, activation};
use parm_encoder::{CodeSpec, Head};
use parm_parity_models::bundle::Meaning;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::fit::fault;
use crate::graph::Real;
use crate::groups::{BLANK, Groups};

/// A loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Cross-entropy between the targets, which are probabilities, and the softmax of the outputs. With a teacher it
    /// differs from the Kullback-Leibler divergence by a constant.
    #[default]
    Kl,
    /// Mean square of the differences.
    Mse,
    /// The square for differences below 1, otherwise the absolute difference: outliers have less weight.
    Huber,
}

impl Loss {
    /// The loss of one batch, a scalar. `temperature` flattens the outputs before the softmax.
    pub(crate) fn of(self, outputs: Tensor<3>, truth: BatchTruth, temperature: f32) -> Tensor<1> {
        let BatchTruth { targets, weights } = truth;
        let values = targets.dims()[2] as f32;
        match self {
            Loss::Kl => {
                let outputs = if temperature == 1.0 { outputs } else { outputs.div_scalar(temperature) };
                let surprise = activation::log_softmax(outputs, 2).mul(targets).mul(weights);
                surprise.sum().mul_scalar(-temperature * temperature)
            }
            Loss::Mse => {
                let off = outputs.sub(targets);
                off.clone().mul(off).mul(weights).sum().div_scalar(values)
            }
            Loss::Huber => {
                let size = outputs.sub(targets).abs();
                let near = size.clone().clamp_max(1.0);
                // 0.5 near^2 + (size - near) is 0.5 d^2 up to 1 and |d| - 0.5 beyond.
                let loss = near.clone().mul(near.clone()).mul_scalar(0.5).add(size.sub(near));
                loss.mul(weights).sum().div_scalar(values)
            }
        }
    }
}

/// The targets of outputs.
pub(crate) struct BatchTruth {
    pub(crate) targets: Tensor<3>,
    /// `[groups, slots, 1]`; they sum to one.
    pub(crate) weights: Tensor<3>,
}

/// Smallest probability whose logarithm is taken.
const TINY: f32 = 1e-12;

/// Converts a teacher's outputs to probabilities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softening {
    /// The meaning of the outputs.
    pub(crate) meaning: Meaning,
    /// Divisor of raw scores: above 1 it reduces the differences between them.
    pub(crate) temperature: f32,
}

/// Converts a teacher's outputs to probabilities in place; each row has `values` of them.
pub(crate) fn soften(outputs: &mut [f32], values: usize, softening: Softening) {
    let Softening { meaning, temperature } = softening;
    for row in outputs.chunks_exact_mut(values.max(1)) {
        if meaning == Meaning::Probabilities {
            row.iter_mut().for_each(|value| *value = value.max(TINY).ln());
        }
        let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        row.iter_mut().for_each(|score| *score = ((*score - largest) / temperature).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|score| *score /= sum);
    }
}

/// A parity model's outputs in terms of the members' predictions.
#[derive(Clone, Debug, PartialEq)]
enum Aim {
    /// Weighted sums of them, one row of weights per parity.
    Sums(Vec<Vec<f32>>),
    /// Each of so many.
    Slots(usize),
}

impl Aim {
    /// The outputs that the code's decoder expects.
    fn of(code: &CodeSpec) -> Result<Self, Error> {
        match code.parity_head() {
            Some(Head::Slots) => Ok(Aim::Slots(code.k)),
            Some(Head::Sum) => Ok(Aim::Sums(code.weights()?)),
            None => Err(Error::Untrained { kind: code.kind }),
        }
    }

    fn slots(&self) -> usize {
        match self {
            Aim::Sums(_) => 1,
            Aim::Slots(slots) => *slots,
        }
    }
}

/// Makes targets, and compares outputs with them.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    aim: Aim,
    /// Values of one prediction.
    values: usize,
    loss: Loss,
    temperature: f32,
}

impl Targets {
    /// Rejects losses that are undefined for the code's parity models.
    pub(crate) fn new(code: &CodeSpec, values: usize, loss: Loss, temperature: f32) -> Result<Self, Error> {
        let aim = Aim::of(code)?;
        match (&aim, loss) {
            (Aim::Sums(rows), Loss::Kl) if rows[0].len() > 1 => Err(Error::LossOfSums),
            _ => Ok(Self { aim, values, loss, temperature }),
        }
    }

    /// The loss of the output of parity `at`; `rows` holds the predictions that the groups refer to.
    pub(crate) fn loss(
        &self,
        at: usize,
        output: Real,
        rows: &[f32],
        groups: &Groups,
    ) -> Result<Tensor<1>, Error> {
        let output = output.reshape(&[groups.len(), self.aim.slots(), self.values]);
        let output = output.and_then(Real::rank3).map_err(fault("the output"))?;
        let truth = self.of(at, rows, groups, &output.device());
        Ok(self.loss.of(output, truth, self.temperature))
    }

    fn of(&self, at: usize, rows: &[f32], groups: &Groups, device: &Device) -> BatchTruth {
        let (values, slots) = (self.values, self.aim.slots());
        let mut targets = vec![0.0f32; groups.len() * slots * values];
        let mut weights = vec![0.0f32; groups.len() * slots];
        for (group, members) in groups.iter().enumerate() {
            for (slot, &member) in members.iter().enumerate().filter(|(_, member)| **member != BLANK) {
                let prediction = &rows[member * values..][..values];
                let (place, factor) = match &self.aim {
                    Aim::Sums(weights) => (0, weights[at][slot]),
                    Aim::Slots(_) => (slot, 1.0),
                };
                let target = &mut targets[(group * slots + place) * values..][..values];
                target.iter_mut().zip(prediction).for_each(|(sum, value)| *sum += factor * value);
                weights[group * slots + place] = 1.0;
            }
        }
        let share = weights.iter().sum::<f32>().max(1.0).recip();
        weights.iter_mut().for_each(|weight| *weight *= share);
        BatchTruth {
            targets: Tensor::from_data(TensorData::new(targets, [groups.len(), slots, values]), device),
            weights: Tensor::from_data(TensorData::new(weights, [groups.len(), slots, 1]), device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soften_is_equal_for_logits_and_their_probabilities() {
        let mut logits = [1.0, 2.0, 3.0];
        let mut twice = logits;
        soften(&mut twice, 3, Softening { meaning: Meaning::Logits, temperature: 1.0 });
        soften(&mut twice, 3, Softening { meaning: Meaning::Probabilities, temperature: 2.0 });
        soften(&mut logits, 3, Softening { meaning: Meaning::Logits, temperature: 2.0 });
        assert!(logits.iter().zip(&twice).all(|(a, b)| (a - b).abs() < 1e-6), "{logits:?} {twice:?}");
    }
}
