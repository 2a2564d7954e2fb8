//! The training task of a code: encoder and decoder together, through the deployed model.

use burn::tensor::{Tensor, TensorData};
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::Meaning;

use super::CodeLoss;
use crate::evaluate::reconstruct::Pairs;
use crate::fit::{Grade, Step, StepOutcome, Task, fault};
use crate::graph::{Mode, Real, Value};
use crate::groups::{Groups, Sampling, encode};
use crate::learn::{BatchTruth, Marks, Set, Softening, largest, predictions, soften};
use crate::network::Network;
use crate::{Array, Error, Loss};

/// The networks with their training data.
pub(super) struct Learning {
    /// Encoder and decoder.
    pub(super) networks: Vec<Network>,
    pub(super) deployed: Network,
    pub(super) set: Set,
    /// The targets of decoded predictions, row by row, in the loss's form.
    pub(super) rows: Vec<f32>,
    pub(super) held_out: Set,
    pub(super) sampling: Sampling,
    pub(super) r: usize,
    pub(super) loss: CodeLoss,
    /// The lost slots, case by case.
    pub(super) cases: Vec<Vec<usize>>,
}

/// Every choice of up to `r` lost slots of `k`.
pub(super) fn cases(k: usize, r: usize) -> Vec<Vec<usize>> {
    let lost = |mask: u32| (0..k).filter(|slot| mask >> slot & 1 == 1).collect::<Vec<_>>();
    (1u32..1 << k).filter(|mask| mask.count_ones() as usize <= r).map(lost).collect()
}

/// Rows for the loss: probabilities of the deployed model or of the labels, or its outputs.
pub(super) fn rows(set: &Set, held: CodeLoss, meaning: Meaning) -> Result<Vec<f32>, Error> {
    let values = set.values();
    let mut rows = set.outputs.data().to_vec();
    match held {
        CodeLoss::Mse => {}
        CodeLoss::Kl => soften(&mut rows, values, Softening { meaning, temperature: 1.0 }),
        CodeLoss::Xent => {
            rows.fill(0.0);
            let labels = set.labels.as_ref().ok_or(Error::NoLabels)?;
            labels.iter().enumerate().for_each(|(row, label)| rows[row * values + label] = 1.0);
        }
    }
    Ok(rows)
}

impl Learning {
    /// The queries of each group side by side, in the layout of the code `slots`.
    fn stack(&self, set: &Set, groups: &Groups) -> Result<Array<f32>, Error> {
        let slots = CodeSpec::new(Kind::Slots, self.sampling.k, 1).build()?;
        Ok(encode(&*slots, groups, &set.inputs)?.remove(0))
    }

    /// Decoder inputs of every case, one case after another: `[cases * groups, k + r, values]`.
    fn outputs(&self, coded: Tensor<3>, members: &[usize]) -> Tensor<3> {
        let (k, values) = (self.sampling.k, self.set.values());
        let groups = members.len() / k;
        let mut exact = vec![0.0; self.cases.len() * members.len() * values];
        for (case, out) in self.cases.iter().zip(exact.chunks_exact_mut(members.len() * values)) {
            for (at, (member, out)) in members.iter().zip(out.chunks_exact_mut(values)).enumerate() {
                if !case.contains(&(at % k)) {
                    out.copy_from_slice(&self.set.outputs.data()[member * values..][..values]);
                }
            }
        }
        let exact = TensorData::new(exact, [self.cases.len() * groups, k, values]);
        let exact = Tensor::<3>::from_data(exact, &coded.device());
        let coded = coded.repeat_dim(0, self.cases.len());
        Tensor::cat(vec![exact, coded], 1)
    }

    /// The decoder's targets in every case: only lost slots count.
    fn truth(&self, members: &[usize], device: &burn::tensor::Device) -> BatchTruth {
        let (k, values) = (self.sampling.k, self.set.values());
        let groups = members.len() / k;
        let mut targets: Vec<f32> = Vec::with_capacity(self.cases.len() * members.len() * values);
        let mut weights = Vec::with_capacity(self.cases.len() * members.len());
        for case in &self.cases {
            for (at, member) in members.iter().enumerate() {
                targets.extend(&self.rows[member * values..][..values]);
                weights.push(f32::from(u8::from(case.contains(&(at % k)))));
            }
        }
        let share = weights.iter().sum::<f32>().max(1.0).recip();
        weights.iter_mut().for_each(|weight| *weight *= share);
        let all = self.cases.len() * groups;
        BatchTruth {
            targets: Tensor::from_data(TensorData::new(targets, [all, k, values]), device),
            weights: Tensor::from_data(TensorData::new(weights, [all, k, 1]), device),
        }
    }

    /// The quality of decoded predictions over every single loss of the groups of `set`.
    pub(super) fn marks(&self, set: &Set) -> Result<Marks, Error> {
        let (k, values) = (self.sampling.k, set.values());
        let groups = Groups::draw(set.len(), k, self.sampling.seed)?;
        let coded = predictions(&self.networks[0], &self.stack(set, &groups)?)?;
        let mut shape = vec![groups.len() * self.r];
        shape.extend(set.dims());
        let coded = coded.reshape(shape).expect("r coded queries for each group");
        let coded = predictions(&self.deployed, &coded)?;
        let said: Vec<usize> = set.outputs.data().chunks_exact(values).map(largest).collect();
        let truth = set.labels.as_ref().unwrap_or(&said);
        let (mut right, mut count) = (0u64, 0u64);
        let mut pairs = Pairs::new(groups.len());
        for lost in 0..k {
            let mut outputs = Vec::with_capacity(groups.len() * (k + self.r) * values);
            for (group, coded) in groups.iter().zip(coded.data().chunks_exact(self.r * values)) {
                for (slot, member) in group.iter().enumerate() {
                    let own = &set.outputs.data()[member * values..][..values];
                    match slot == lost {
                        true => outputs.extend(std::iter::repeat_n(0.0, values)),
                        false => outputs.extend(own),
                    }
                }
                outputs.extend(coded);
            }
            let outputs = Array::new(vec![groups.len(), k + self.r, values], outputs).expect("all outputs");
            let decoded = predictions(&self.networks[1], &outputs)?;
            for (at, (group, decoded)) in
                groups.iter().zip(decoded.data().chunks_exact(k * values)).enumerate()
            {
                let row = group[lost];
                let reconstruction = largest(&decoded[lost * values..][..values]);
                count += 1;
                right += u64::from(reconstruction == truth[row]);
                let score = |is_right: bool| f64::from(u8::from(is_right));
                pairs.add(at, score(said[row] == truth[row]), score(reconstruction == truth[row]));
            }
        }
        let available = said.iter().zip(truth).filter(|(said, truth)| said == truth).count();
        Ok(Marks {
            available: available as f64 / truth.len() as f64,
            degraded: right as f64 / count.max(1) as f64,
            reconstructions: count,
            gap_error: pairs.error(),
        })
    }
}

impl Task for Learning {
    fn networks(&mut self) -> &mut [Network] {
        &mut self.networks
    }

    fn draw(&self, epoch: u64) -> Groups {
        self.sampling.draw(self.set.len(), epoch)
    }

    fn step(&mut self, step: Step<'_>, leaves: &[Vec<Real>]) -> Result<StepOutcome, Error> {
        let members = step.groups.members();
        let (k, values, groups) = (self.sampling.k, self.set.values(), step.groups.len());
        let [encoder, decoder] = &self.networks[..] else { return Err(Error::OutputKind) };
        let queries = encoder.rows(self.stack(&self.set, step.groups)?)?;
        let coded = first(encoder.forward(&leaves[0], queries, Mode::Train)?.outputs)?;
        let mut shape = vec![groups * self.r];
        shape.extend(self.set.dims());
        let coded = coded.reshape(&shape).map_err(fault("the coded queries"))?;
        let run = self.deployed.forward(&self.deployed.frozen(), vec![Value::Real(coded)], Mode::Evaluate)?;
        let shape = [groups, self.r, values];
        let coded = self
            .deployed
            .said(&run.outputs, groups * self.r)?
            .reshape(&shape)
            .and_then(Real::rank3)
            .map_err(fault("the deployed output"))?;
        let device = coded.device();
        let outputs = Value::Real(Real::R3(self.outputs(coded, members)));
        let decoded = first(decoder.forward(&leaves[1], vec![outputs], Mode::Train)?.outputs)?;
        let shape = [groups * self.cases.len(), k, values];
        let decoded =
            decoded.reshape(&shape).and_then(Real::rank3).map_err(fault("the decoded predictions"))?;
        let loss = if self.loss == CodeLoss::Mse { Loss::Mse } else { Loss::Kl };
        let loss = loss.of(decoded, self.truth(members, &device), 1.0);
        Ok(StepOutcome { loss, statistics: vec![Vec::new(), Vec::new()] })
    }

    fn is_taught(&self) -> bool {
        false
    }

    fn examine(&mut self) -> Result<Grade, Error> {
        Ok(Grade { score: self.marks(&self.held_out)?.degraded, loss: None })
    }
}

fn first(outputs: Vec<Value>) -> Result<Real, Error> {
    match outputs.into_iter().next() {
        Some(Value::Real(real)) => Ok(real),
        _ => Err(Error::OutputKind),
    }
}
