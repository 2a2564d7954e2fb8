//! What a network's outputs are held to, computed on the device.
//!
//! Outputs and targets are `[groups, slots, values]`; a weight for each slot (zero for blank ones) makes the sum of
//! the slots' losses a mean over those that count.

use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

/// A loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Cross-entropy between the targets, which are probabilities, and the softmax of the outputs: against labels, or
    /// against a teacher, where it differs from the Kullback-Leibler divergence by a constant.
    #[default]
    Kl,
    /// Mean square of the differences.
    Mse,
    /// As the square for differences below 1, else their size: outliers pull less.
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

/// What outputs are held to.
pub(crate) struct BatchTruth {
    pub(crate) targets: Tensor<3>,
    /// `[groups, slots, 1]`; they add up to one.
    pub(crate) weights: Tensor<3>,
}

/// What a teacher's outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scores {
    /// Raw scores.
    Logits,
    /// Probabilities already.
    Probabilities,
}

/// Smallest probability whose logarithm is taken.
const TINY: f32 = 1e-12;

/// How a teacher's outputs become probabilities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softening {
    /// What the outputs are.
    pub(crate) scores: Scores,
    /// By what raw scores are divided: above 1, the differences between them shrink.
    pub(crate) temperature: f32,
}

/// Probabilities from a teacher's outputs, in place; each row has `values` of them.
pub(crate) fn soften(outputs: &mut [f32], values: usize, softening: Softening) {
    let Softening { scores, temperature } = softening;
    for row in outputs.chunks_exact_mut(values.max(1)) {
        if scores == Scores::Probabilities {
            row.iter_mut().for_each(|value| *value = value.max(TINY).ln());
        }
        let largest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        row.iter_mut().for_each(|score| *score = ((*score - largest) / temperature).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|score| *score /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softened_scores_are_the_same_from_logits_and_from_their_probabilities() {
        let mut logits = [1.0, 2.0, 3.0];
        let mut twice = logits;
        soften(&mut twice, 3, Softening { scores: Scores::Logits, temperature: 1.0 });
        soften(&mut twice, 3, Softening { scores: Scores::Probabilities, temperature: 2.0 });
        soften(&mut logits, 3, Softening { scores: Scores::Logits, temperature: 2.0 });
        assert!(logits.iter().zip(&twice).all(|(a, b)| (a - b).abs() < 1e-6), "{logits:?} {twice:?}");
    }
}
