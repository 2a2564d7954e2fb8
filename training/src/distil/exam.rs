//! Exam: reconstructs every single loss of held-out groups with the code that serves, and scores the results.

use parm_encoder::{Received, Set as Slots, Workspace};

use super::{Coder, Set, predictions};
use crate::evaluate::Pairs;
use crate::groups::{BLANK, TrainingGroups};
use crate::network::Network;
use crate::{Array, Error};

/// Held-out groups.
pub(crate) struct Exam {
    set: Set,
    groups: TrainingGroups,
    coded: Vec<Array<f32>>,
}

/// The result of an exam.
#[derive(Clone, Debug, PartialEq)]
pub struct Marks {
    /// Accuracy of predictions (A_a): the share of right ones; 1 for numbers.
    pub available: f64,
    /// Accuracy of reconstructions (A_d).
    pub degraded: f64,
    /// Number of reconstructions.
    pub reconstructions: u64,
    /// The standard error of A_a - A_d over the same rows; `None` unless answers are classes.
    pub gap_error: Option<f64>,
}

/// One reconstruction.
pub(crate) struct Answer<'a> {
    /// Its group.
    pub(crate) group: usize,
    /// The row of the set that it replaces.
    pub(crate) row: usize,
    pub(crate) reconstruction: &'a [f32],
}

impl Exam {
    /// Groups over all of `set`, each row at most once.
    pub(crate) fn new(set: Set, coder: &mut Coder, seed: u64) -> Result<Self, Error> {
        let k = coder.code().recovery().k;
        let groups = TrainingGroups::once(set.len(), k, seed);
        if groups.len() == 0 {
            return Err(Error::TooFew { rows: set.len(), wanted: k });
        }
        let coded = coder.encode(set.inputs.data(), groups.range(0, groups.len()))?;
        Ok(Self { set, groups, coded })
    }

    pub(crate) fn set(&self) -> &Set {
        &self.set
    }

    /// Calls `see` with the reconstruction of every member of every group, as if only that member were lost.
    pub(crate) fn reconstruct(
        &self,
        coder: &Coder,
        networks: &[Network],
        mut see: impl FnMut(Answer<'_>),
    ) -> Result<(), Error> {
        let (values, outputs) = (self.set.values(), self.set.outputs.data());
        let parities: Vec<Array<f32>> = networks
            .iter()
            .zip(&self.coded)
            .map(|(network, coded)| predictions(network, coded))
            .collect::<Result<_, _>>()?;
        let mut workspace = Workspace::default();
        let mut prediction = vec![0.0; values];
        for (at, members) in self.groups.iter().enumerate() {
            let known = |&row: &u32| (row != BLANK).then(|| &outputs[row as usize * values..][..values]);
            let predictions: Vec<Option<&[f32]>> = members.iter().map(known).collect();
            let parities: Vec<Option<&[f32]>> =
                parities.iter().map(|parity| parity.data().chunks_exact(parity.shape()[1]).nth(at)).collect();
            for (slot, &row) in members.iter().enumerate() {
                let mut predictions = predictions.clone();
                predictions[slot] = None;
                let received = Received {
                    members: Slots::first(members.len()),
                    predictions: &predictions,
                    parities: &parities,
                };
                coder.code().decode(received, slot, &mut prediction, &mut workspace)?;
                see(Answer { group: at, row: row as usize, reconstruction: &prediction });
            }
        }
        Ok(())
    }

    /// The share of right reconstructions, by labels; without labels, by the teacher.
    pub(crate) fn classify(&self, coder: &Coder, networks: &[Network]) -> Result<Marks, Error> {
        let values = self.set.values();
        let said: Vec<usize> = self.set.outputs.data().chunks_exact(values).map(largest).collect();
        let truth = self.set.labels.as_ref().unwrap_or(&said);
        let (mut right, mut count) = (0u64, 0u64);
        let mut pairs = Pairs::new(self.groups.len());
        self.reconstruct(coder, networks, |answer| {
            let truth = truth[answer.row];
            let (prediction, reconstruction) = (said[answer.row], largest(answer.reconstruction));
            count += 1;
            right += u64::from(reconstruction == truth);
            pairs.add(answer.group, score(prediction == truth), score(reconstruction == truth));
        })?;
        let available = said.iter().zip(truth).filter(|(said, truth)| said == truth).count();
        Ok(Marks {
            available: available as f64 / truth.len() as f64,
            degraded: right as f64 / count.max(1) as f64,
            reconstructions: count,
            gap_error: pairs.error(),
        })
    }

    /// One minus the mean square error against the teacher over its variance.
    pub(crate) fn regress(&self, coder: &Coder, networks: &[Network]) -> Result<Marks, Error> {
        let (values, outputs) = (self.set.values(), self.set.outputs.data());
        let rows = self.set.len() as f64;
        let mut means = vec![0.0f64; values];
        outputs.iter().enumerate().for_each(|(at, &value)| means[at % values] += f64::from(value) / rows);
        let spread = |(at, &value): (usize, &f32)| (f64::from(value) - means[at % values]).powi(2);
        let variance = outputs.iter().enumerate().map(spread).sum::<f64>() / outputs.len() as f64;
        let (mut square, mut count) = (0.0, 0u64);
        self.reconstruct(coder, networks, |answer| {
            let truth = &outputs[answer.row * values..][..values];
            let off = answer.reconstruction.iter().zip(truth).map(|(a, b)| f64::from(a - b).powi(2));
            square += off.sum::<f64>() / values as f64;
            count += 1;
        })?;
        let degraded = 1.0 - square / count.max(1) as f64 / variance.max(f64::MIN_POSITIVE);
        Ok(Marks { available: 1.0, degraded, reconstructions: count, gap_error: None })
    }
}

/// The score of an answer: 1 if it is right, otherwise 0.
pub(crate) fn score(is_right: bool) -> f64 {
    f64::from(u8::from(is_right))
}

/// The index of the largest value; the first of equal ones.
pub(crate) fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = at;
        }
    }
    best
}
