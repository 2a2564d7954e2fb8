//! A running average of the weights over the steps; it often predicts better than the weights.
#![allow(unsafe_code)] // only what `multiversion` generates: a call guarded by its own run-time feature detection

use multiversion::multiversion;

/// Averages, one for each parameter and buffer of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Average {
    /// Share of the old average that a step keeps.
    decay: f32,
    pub(crate) steps: u64,
    pub(crate) values: Vec<Vec<f32>>,
}

impl Average {
    /// Starts from the current weights.
    pub(crate) fn new(decay: f32, values: Vec<Vec<f32>>) -> Self {
        Self { decay, steps: 0, values }
    }

    /// Starts an update towards the current weights: the returned function must receive all of them, in order. Early
    /// steps count more, so that the initial weights soon fade.
    pub(crate) fn follow(&mut self) -> impl FnMut(&[f32]) + use<'_> {
        self.steps += 1;
        let steps = self.steps as f32;
        let share = 1.0 - self.decay.min((1.0 + steps) / (10.0 + steps));
        let mut averages = self.values.iter_mut();
        move |now| {
            if let Some(average) = averages.next() {
                approach(average, now, share);
            }
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn approach(average: &mut [f32], now: &[f32], share: f32) {
    average.iter_mut().zip(now).for_each(|(average, now)| *average += share * (now - *average));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_approaches_constant_weights() {
        let mut average = Average::new(0.9, vec![vec![0.0]]);
        (0..200).for_each(|_| average.follow()(&[1.0]));
        assert!((average.values[0][0] - 1.0).abs() < 1e-6);
    }
}
