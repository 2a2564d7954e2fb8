//! Learned codes (*Learning a Code*, arXiv 1806.01259): two networks around the deployed model.
//!
//! The deployed model serves the coded queries. The encoder makes r coded queries from k queries; the decoder reads
//! all k + r outputs, zeros for lost ones, and makes k predictions. Both are trained together through the deployed
//! model, whose weights are frozen, over every case of up to r lost predictions.

mod nets;

use burn::tensor::{Tensor, TensorData};
use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::{Model, rewrite};
use serde::{Deserialize, Serialize};

use crate::data::Samples;
use crate::evaluate::reconstruct::Pairs;
use crate::fit::{self, Epoch, Grade, Settings, Step, StepOutcome, Surroundings, Task, fault};
use crate::graph::{Mode, Real, Value};
use crate::groups::{Groups, Sampling, encode};
use crate::learn::{
    BatchTruth, Marks, Materials, Set, Softening, fingerprint, hold, largest, meaning as graph_meaning,
    predictions, soften, taught,
};
use crate::{Array, Device, Error, Loss, Network};
use nets::Sizes;

/// The encoder network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoder {
    /// Two fully connected layers on all values of all queries.
    #[default]
    Mlp,
    /// Convolutions of growing reach, channel by channel; for images.
    Conv,
}

/// The target of decoded predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeLoss {
    /// The deployed model's probabilities.
    #[default]
    Kl,
    /// The deployed model's outputs.
    Mse,
    /// The labels.
    Xent,
}

/// Settings for the training of a learned code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodeRecipe {
    /// The encoder: `mlp` or `conv`. Default `mlp`.
    pub encoder: Encoder,
    /// Queries in a group. Default 2.
    pub k: usize,
    /// Coded queries of a group. Default 1.
    pub r: usize,
    /// The target of decoded predictions: `kl`, `mse` or `xent`. Default `kl`.
    pub loss: CodeLoss,
    /// Groups in an epoch, as a multiple of the number that uses each row once. Default 1.
    pub passes: f32,
    /// Rows held out to choose the best epoch. Default 5000, and at most a sixth.
    pub held_out: usize,
    /// The run.
    pub run: Settings,
}

impl Default for CodeRecipe {
    fn default() -> Self {
        Self {
            encoder: Encoder::Mlp,
            k: 2,
            r: 1,
            loss: CodeLoss::Kl,
            passes: 1.0,
            held_out: 5000,
            run: Settings::default(),
        }
    }
}

/// Maximum number of queries: the cases of lost predictions multiply.
const MAX_K: usize = 8;

/// A trained code.
#[derive(Clone, Debug)]
pub struct TrainedCode {
    /// The code.
    pub code: CodeSpec,
    /// The encoder's ONNX file.
    pub encoder: Bytes,
    /// The decoder's.
    pub decoder: Bytes,
    /// The marks on held-out groups.
    pub marks: Marks,
    /// The marks on the test rows, if any.
    pub tested: Option<Marks>,
    /// The meaning of the deployed model's output.
    pub meaning: Meaning,
    /// The run's epochs.
    pub history: Vec<Epoch>,
    /// Rows that groups were drawn from.
    pub samples: usize,
    /// Groups in an epoch.
    pub groups: usize,
}

/// Trains encoder and decoder for a deployed model; training does not see the rows in `test`.
pub fn train(
    samples: &Samples,
    test: Option<&Samples>,
    deployed: &Model,
    recipe: &CodeRecipe,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedCode, Error> {
    check(recipe, samples)?;
    let network = Network::new(rewrite::Draft::new(deployed)?.finish()?, device)?;
    network.accepts(&samples.inputs)?;
    let materials = Materials { samples, graph: deployed, teacher: None, outputs: None };
    let set = taught(materials, &network)?;
    let meaning = graph_meaning(deployed);
    hold(&set, true)?;
    let seed = recipe.run.seed;
    let sizes = Sizes { k: recipe.k, r: recipe.r, dims: set.dims().to_vec(), values: set.values(), seed };
    if recipe.encoder == Encoder::Conv && sizes.dims.len() != 3 {
        return Err(Error::NotImages { dims: sizes.dims });
    }
    let encoder = match recipe.encoder {
        Encoder::Mlp => sizes.mlp_encoder()?,
        Encoder::Conv => sizes.conv_encoder()?,
    };
    let networks = vec![Network::new(encoder, device)?, Network::new(sizes.decoder()?, device)?];
    let fingerprint = fingerprint(&["code", &format!("{recipe:?}")], &set, &[deployed]);
    let (set, held_out) = set.split(recipe.held_out, seed);
    if held_out.len() < recipe.k {
        return Err(Error::TooFew { rows: held_out.len(), wanted: recipe.k });
    }
    let groups = ((set.len() / recipe.k) as f64 * f64::from(recipe.passes)).round().max(1.0) as usize;
    let sampling = Sampling { k: recipe.k, groups, blanks: 0.0, seed };
    let samples = set.len();
    let mut learning = Learning {
        networks,
        deployed: network,
        rows: rows(&set, recipe.loss, meaning)?,
        set,
        held_out,
        sampling,
        r: recipe.r,
        loss: recipe.loss,
        cases: cases(recipe.k, recipe.r),
    };
    let history = fit::run(&mut learning, &recipe.run, &fingerprint, around)?;
    let unseen = |samples| taught(Materials { samples, ..materials }, &learning.deployed);
    let tested = test.map(|test| learning.marks(&unseen(test)?)).transpose()?;
    Ok(TrainedCode {
        code: CodeSpec::new(Kind::Learned, recipe.k, recipe.r),
        encoder: learning.networks[0].export()?,
        decoder: learning.networks[1].export()?,
        marks: learning.marks(&learning.held_out)?,
        tested,
        meaning,
        history,
        samples,
        groups,
    })
}

fn check(recipe: &CodeRecipe, samples: &Samples) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::Setting { message });
    match recipe {
        CodeRecipe { k, .. } if !(2..=MAX_K).contains(k) => wrong(format!("k must be from 2 to {MAX_K}")),
        CodeRecipe { k, r, .. } if *r == 0 || r > k => wrong("r must be from 1 to k".into()),
        CodeRecipe { passes, .. } if !(*passes > 0.0 && *passes <= 1000.0) => {
            wrong("passes must be above 0 and at most 1000".into())
        }
        CodeRecipe { loss: CodeLoss::Xent, .. } if samples.labels.is_none() => Err(Error::NoLabels),
        _ => recipe.run.check(),
    }
}

/// The networks with their training data.
struct Learning {
    /// Encoder and decoder.
    networks: Vec<Network>,
    deployed: Network,
    set: Set,
    /// The targets of decoded predictions, row by row, in the loss's form.
    rows: Vec<f32>,
    held_out: Set,
    sampling: Sampling,
    r: usize,
    loss: CodeLoss,
    /// The lost slots, case by case.
    cases: Vec<Vec<usize>>,
}

/// Every choice of up to `r` lost slots of `k`.
fn cases(k: usize, r: usize) -> Vec<Vec<usize>> {
    let lost = |mask: u32| (0..k).filter(|slot| mask >> slot & 1 == 1).collect::<Vec<_>>();
    (1u32..1 << k).filter(|mask| mask.count_ones() as usize <= r).map(lost).collect()
}

/// Rows for the loss: probabilities of the deployed model or of the labels, or its outputs.
fn rows(set: &Set, held: CodeLoss, meaning: Meaning) -> Result<Vec<f32>, Error> {
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
    fn marks(&self, set: &Set) -> Result<Marks, Error> {
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
