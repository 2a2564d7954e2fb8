//! A running average of the weights over the steps, which often predicts better than the weights themselves.

/// Averages, one for each parameter and buffer of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Average {
    /// Share of the old average that stays at a step.
    decay: f32,
    pub(crate) steps: u64,
    pub(crate) values: Vec<Vec<f32>>,
}

impl Average {
    /// Starts from what the weights are.
    pub(crate) fn new(decay: f32, values: Vec<Vec<f32>>) -> Self {
        Self { decay, steps: 0, values }
    }

    /// Moves towards what the weights are now. Early steps count more, so that the start is soon forgotten.
    pub(crate) fn follow(&mut self, now: &[Vec<f32>]) {
        self.steps += 1;
        let steps = self.steps as f32;
        let keep = self.decay.min((1.0 + steps) / (10.0 + steps));
        for (average, now) in self.values.iter_mut().zip(now) {
            for (average, now) in average.iter_mut().zip(now) {
                *average += (1.0 - keep) * (now - *average);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_approaches_weights_that_stay() {
        let mut average = Average::new(0.9, vec![vec![0.0]]);
        (0..200).for_each(|_| average.follow(&[vec![1.0]]));
        assert!((average.values[0][0] - 1.0).abs() < 1e-6);
    }
}
