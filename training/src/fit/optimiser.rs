//! Adam, and an average of the weights.

use burn::optim::decay::WeightDecayConfig;
use burn::optim::{Adam, AdamConfig, AdamState, AdaptiveMomentumState, Optimizer};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::Settings;

/// Weight decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// Added to the gradient before the moments, as in ParM's recipe.
    #[default]
    Coupled,
    /// Subtracted from the weights, separate from the moments (AdamW).
    Decoupled,
}

/// Burn's Adam with the constants of the paper's framework, and its state for each parameter.
pub(super) struct Optimiser {
    adam: Adam,
    /// The share of the weights that a step of size 1 subtracts.
    shrink: f32,
    states: Vec<Option<AdamState<1>>>,
}

impl Optimiser {
    pub(super) fn new(settings: &Settings, parameters: usize) -> Self {
        let (coupled, shrink) = match settings.decay {
            Decay::Coupled => (settings.weight_decay, 0.0),
            Decay::Decoupled => (0.0, settings.weight_decay),
        };
        let decay = (coupled > 0.0).then(|| WeightDecayConfig::new(coupled));
        let adam = AdamConfig::new().with_epsilon(1e-8).with_weight_decay(decay).build();
        Self { adam, shrink, states: vec![None; parameters] }
    }

    /// The new value of parameter `number` after a step.
    pub(super) fn step(
        &mut self,
        number: usize,
        rate: f32,
        value: Tensor<1>,
        gradient: Tensor<1>,
    ) -> Tensor<1> {
        let value = if self.shrink > 0.0 { value.mul_scalar(1.0 - rate * self.shrink) } else { value };
        let state = self.states[number].take();
        let (value, state) = self.adam.step(f64::from(rate), value, gradient, state);
        self.states[number] = state;
        value
    }

    /// The moments of all parameters, two arrays each; empty before a parameter's first step.
    pub(super) fn moments(&self) -> Vec<Vec<f32>> {
        let both = |state: &Option<AdamState<1>>| match state {
            Some(AdamState { momentum }) => [downloaded(&momentum.moment_1), downloaded(&momentum.moment_2)],
            None => [Vec::new(), Vec::new()],
        };
        self.states.iter().flat_map(both).collect()
    }

    /// Continues after `steps` steps with these moments.
    pub(super) fn resume(&mut self, steps: usize, moments: &[Vec<f32>], device: &Device) {
        for (state, moments) in self.states.iter_mut().zip(moments.chunks_exact(2)) {
            let [first, second] = [&moments[0], &moments[1]].map(|moment| uploaded(moment, device));
            let momentum = AdaptiveMomentumState::new(steps, first, second);
            *state = (!moments[0].is_empty()).then(|| AdamState::new(momentum));
        }
    }
}

fn downloaded(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.to_data_as::<f32>().try_into_vec::<f32>().expect("floats")
}

fn uploaded(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// A running average of all weights over the steps; it often predicts better than the weights.
pub(super) struct Average {
    /// Share of the old average that a step keeps.
    decay: f32,
    steps: u64,
    values: Vec<Tensor<1>>,
}

impl Average {
    /// Starts from these weights.
    pub(super) fn new(decay: f32, values: Vec<Tensor<1>>) -> Self {
        Self { decay, steps: 0, values }
    }

    /// Moves towards the current weights. Early steps count more, so that the initial weights soon fade.
    pub(super) fn follow(&mut self, now: impl Iterator<Item = Tensor<1>>) {
        self.steps += 1;
        let steps = self.steps as f32;
        let share = 1.0 - self.decay.min((1.0 + steps) / (10.0 + steps));
        for (average, now) in self.values.iter_mut().zip(now) {
            *average = average.clone().mul_scalar(1.0 - share).add(now.mul_scalar(share));
        }
    }

    pub(super) fn snapshot(&self) -> Vec<Vec<f32>> {
        self.values.iter().map(downloaded).collect()
    }

    /// Continues after `steps` steps with these averages.
    pub(super) fn resume(&mut self, steps: u64, values: &[Vec<f32>], device: &Device) {
        self.steps = steps;
        self.values = values.iter().map(|values| uploaded(values, device)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three steps with gradients 1, -2, 0.5 from 1.0 at rate 0.1, as PyTorch computes them.
    #[test]
    fn steps_match_the_reference() {
        let number = |value: f32| uploaded(&[value], &Device::flex());
        let run = |decay, weight_decay| {
            let settings = Settings { decay, weight_decay, ..Settings::default() };
            let mut optimiser = Optimiser::new(&settings, 1);
            let value = [1.0, -2.0, 0.5]
                .into_iter()
                .fold(number(1.0), |value, gradient| optimiser.step(0, 0.1, value, number(gradient)));
            value.into_scalar::<f32>()
        };
        // By hand: m = .1, -.11, -.049; v = 1e-3, 4.999e-3, 5.244e-3, each over its correction.
        assert!((run(Decay::Coupled, 0.0) - 0.949_98).abs() < 1e-3, "{}", run(Decay::Coupled, 0.0));
        assert!(run(Decay::Decoupled, 0.1) < run(Decay::Coupled, 0.0));
    }

    #[test]
    fn average_approaches_constant_weights() {
        let number = |value: f32| uploaded(&[value], &Device::flex());
        let mut average = Average::new(0.9, vec![number(0.0)]);
        (0..200).for_each(|_| average.follow(std::iter::once(number(1.0))));
        assert!((average.snapshot()[0][0] - 1.0).abs() < 1e-6);
    }
}
