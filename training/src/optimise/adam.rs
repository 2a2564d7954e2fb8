//! Adam, in one pass over each parameter.
//!
//! With tensor operations a step reads and writes memory about thirteen times; here the update is one loop, which the
//! compiler vectorises. The moments stay in host memory, as do the weights on the processor. Constants are those of
//! the paper's framework: beta 0.9 and 0.999, epsilon 1e-8 (Burn's default is 1e-5).
#![allow(unsafe_code)] // only what `multiversion` generates: a call guarded by its own run-time feature detection

use multiversion::multiversion;
use serde::{Deserialize, Serialize};

use crate::graph::Real;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

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

/// The optimiser's state for one set of parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Adam {
    /// Steps made.
    pub(crate) steps: u64,
    /// First and second moments of each parameter.
    pub(crate) moments: Vec<[Vec<f32>; 2]>,
}

/// The settings of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) rate: f32,
    pub(crate) weight_decay: f32,
    pub(crate) decay: Decay,
}

impl Adam {
    /// For parameters of these sizes.
    pub(crate) fn new(sizes: impl IntoIterator<Item = usize>) -> Self {
        let moments = sizes.into_iter().map(|size| [vec![0.0; size], vec![0.0; size]]);
        Self { steps: 0, moments: moments.collect() }
    }

    /// Starts a step, whose constants are the same for every parameter.
    pub(crate) fn begin(&mut self, step: Step) -> Update<'_> {
        self.steps += 1;
        let correction = |beta: f32| (1.0 - f64::from(beta).powf(self.steps as f64)) as f32;
        let (first, second) = (correction(BETA1), correction(BETA2));
        Update { step, first, second, moments: &mut self.moments }
    }
}

/// One step, applied parameter by parameter.
pub(crate) struct Update<'a> {
    step: Step,
    first: f32,
    second: f32,
    moments: &'a mut [[Vec<f32>; 2]],
}

impl Update<'_> {
    /// The new value of parameter `number`.
    pub(crate) fn apply(&mut self, number: usize, value: Real, gradient: Real) -> Real {
        gradient.read_elements(|gradient| value.with_elements(|value| self.change(number, value, gradient)))
    }

    fn change(&mut self, number: usize, value: &mut [f32], gradient: &[f32]) {
        let Step { rate, weight_decay, decay } = self.step;
        let (coupled, shrink) = match decay {
            Decay::Coupled => (weight_decay, 1.0),
            Decay::Decoupled => (0.0, 1.0 - rate * weight_decay),
        };
        let (scale, root) = (rate / self.first, self.second.sqrt().recip());
        let [first, second] = &mut self.moments[number];
        advance(value, gradient, first, second, Factors { coupled, shrink, scale, root });
    }
}

/// The constants of a step.
#[derive(Clone, Copy)]
struct Factors {
    /// The share of the weights that is added to the gradient.
    coupled: f32,
    /// The factor that shrinks the weights.
    shrink: f32,
    /// The step size over the first moment's correction.
    scale: f32,
    /// One over the root of the second moment's correction.
    root: f32,
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn advance(value: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], factors: Factors) {
    let Factors { coupled, shrink, scale, root } = factors;
    let moments = first.iter_mut().zip(second.iter_mut());
    for ((value, gradient), (m, v)) in value.iter_mut().zip(gradient).zip(moments) {
        let gradient = gradient + coupled * *value;
        *m = BETA1 * *m + (1.0 - BETA1) * gradient;
        *v = BETA2 * *v + (1.0 - BETA2) * gradient * gradient;
        *value = shrink * *value - scale * *m / (v.sqrt() * root + EPSILON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three steps with gradients 1, -2, 0.5 from 1.0 at rate 0.1, as PyTorch 2 computes them.
    #[test]
    fn steps_match_the_reference() {
        let run = |decay, weight_decay| {
            let mut adam = Adam::new([1]);
            let mut value = [1.0f32];
            for gradient in [1.0, -2.0, 0.5] {
                adam.begin(Step { rate: 0.1, weight_decay, decay }).change(0, &mut value, &[gradient]);
            }
            value[0]
        };
        // Computed by hand: m = .1, -.11, -.049; v = 1e-3, 4.999e-3, 5.244e-3, each over its correction.
        assert!((run(Decay::Coupled, 0.0) - 0.949_98).abs() < 1e-3, "{}", run(Decay::Coupled, 0.0));
        assert!(run(Decay::Decoupled, 0.1) < run(Decay::Coupled, 0.0));
    }
}
