//! The targets of the networks' outputs for a group.

use burn::tensor::{Device, Tensor, TensorData};
use parm_encoder::{CodeSpec, Head};

use crate::groups::BLANK;
use crate::loss::BatchTruth;
use crate::{Error, Loss};

/// A parity model's outputs in terms of the members' predictions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aim {
    /// Weighted sums of them, one row of weights per parity.
    Sums(Vec<Vec<f32>>),
    /// Each of them, at these positions.
    Slots(Vec<usize>),
}

impl Aim {
    /// The outputs that the code's decoder expects.
    pub(crate) fn of(code: &CodeSpec) -> Result<Self, Error> {
        match code.parity_head() {
            Some(Head::Slots) => Ok(Aim::Slots(code.places()?)),
            Some(Head::Sum) => Ok(Aim::Sums(code.weights()?)),
            None => Err(Error::Untrained { kind: code.kind }),
        }
    }

    /// The number of predictions in one parity output.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Aim::Sums(_) => 1,
            Aim::Slots(places) => places.len(),
        }
    }
}

/// Makes targets.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub(crate) aim: Aim,
    /// Values of one prediction.
    pub(crate) values: usize,
}

impl Targets {
    /// Rejects losses that are undefined for these outputs.
    pub(crate) fn check(&self, loss: Loss) -> Result<(), Error> {
        match (&self.aim, loss) {
            (Aim::Sums(rows), Loss::Kl) if rows[0].len() > 1 => Err(Error::LossOfSums),
            _ => Ok(()),
        }
    }

    /// The targets of parity `at`; `rows` holds the predictions that `members` refers to.
    pub(crate) fn of(&self, at: usize, rows: &[f32], members: &[u32], device: &Device) -> BatchTruth {
        let (values, slots) = (self.values, self.aim.slots());
        let k = match &self.aim {
            Aim::Sums(weights) => weights[at].len(),
            Aim::Slots(places) => places.len(),
        };
        let groups = members.len() / k;
        let mut targets = vec![0.0f32; groups * slots * values];
        let mut weights = vec![0.0f32; groups * slots];
        for (group, members) in members.chunks_exact(k).enumerate() {
            for (slot, &member) in members.iter().enumerate().filter(|(_, member)| **member != BLANK) {
                let prediction = &rows[member as usize * values..][..values];
                let (place, factor) = match &self.aim {
                    Aim::Sums(weights) => (0, weights[at][slot]),
                    Aim::Slots(places) => (places[slot], 1.0),
                };
                let target = &mut targets[(group * slots + place) * values..][..values];
                target.iter_mut().zip(prediction).for_each(|(sum, value)| *sum += factor * value);
                weights[group * slots + place] = 1.0;
            }
        }
        let share = weights.iter().sum::<f32>().max(1.0).recip();
        weights.iter_mut().for_each(|weight| *weight *= share);
        BatchTruth {
            targets: Tensor::from_data(TensorData::new(targets, [groups, slots, values]), device),
            weights: Tensor::from_data(TensorData::new(weights, [groups, slots, 1]), device),
        }
    }
}
