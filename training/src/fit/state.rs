//! The state of a run between two steps, saved to checkpoints and restored from them.

use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::{Epoch, Files, Keep, Settings, Task};
use crate::Error;
use crate::network::Network;
use crate::optimise::{Adam, Average};

/// The state of a run.
pub(super) struct State {
    /// Finished epochs.
    pub(super) epoch: u64,
    /// Finished steps of this epoch.
    pub(super) step: u64,
    /// Number of groups in this epoch.
    pub(super) groups: u64,
    pub(super) adam: Adam,
    pub(super) average: Option<Average>,
    pub(super) history: Vec<Epoch>,
    best: Option<Best>,
    /// Sum of the losses of this epoch; on the device, so that no step waits for it.
    loss: Option<Tensor<1>>,
    /// The part of the sum that came from a checkpoint.
    earlier_loss: f64,
}

struct Best {
    score: f64,
    weights: Vec<Vec<f32>>,
}

/// The numbers of a state that are not tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    epoch: u64,
    step: u64,
    groups: u64,
    adam_steps: u64,
    average_steps: u64,
    best: Option<f64>,
    loss: f64,
    history: Vec<Epoch>,
}

impl State {
    /// Restores the state of the checkpoint, or starts a new run.
    pub(super) fn open(
        task: &mut dyn Task,
        settings: &Settings,
        fingerprint: &str,
        files: &Files,
    ) -> Result<Self, Error> {
        let mut state = Self::new(task, settings);
        let Some(path) = files.checkpoint.as_ref().filter(|path| path.exists()) else { return Ok(state) };
        let saved = Checkpoint::read(path, fingerprint)?;
        state.load(task, saved)?;
        Ok(state)
    }

    fn new(task: &mut dyn Task, settings: &Settings) -> Self {
        let networks = task.networks();
        let average = (settings.average > 0.0)
            .then(|| Average::new(settings.average, networks.iter().flat_map(Network::snapshot).collect()));
        Self {
            epoch: 0,
            step: 0,
            groups: 0,
            adam: Adam::new(networks.iter().flat_map(Network::sizes)),
            average,
            history: Vec::new(),
            best: None,
            loss: None,
            earlier_loss: 0.0,
        }
    }

    pub(super) fn add_loss(&mut self, loss: Tensor<1>) {
        self.loss = Some(match self.loss.take() {
            Some(sum) => sum.add(loss),
            None => loss,
        });
    }

    fn loss_so_far(&self) -> f64 {
        let now = self.loss.clone().map_or(0.0, |sum| f64::from(sum.into_scalar::<f32>()));
        self.earlier_loss + now
    }

    /// Scores the networks, keeps the best weights, and starts the next epoch.
    pub(super) fn finish_epoch(
        &mut self,
        task: &mut dyn Task,
        settings: &Settings,
        rate: f32,
        started: Instant,
    ) -> Result<Epoch, Error> {
        let (seconds, steps) = (started.elapsed().as_secs_f64(), self.step);
        let loss = self.loss_so_far() / steps.max(1) as f64;
        (self.loss, self.earlier_loss) = (None, 0.0);
        if !loss.is_finite() {
            return Err(Error::Diverged { epoch: self.epoch + 1, rate });
        }
        self.epoch += 1;
        self.step = 0;
        let is_scored =
            self.epoch.is_multiple_of(settings.score_every.max(1)) || self.epoch == settings.epochs;
        let score = if is_scored { Some(self.score(task)?) } else { None };
        let groups = std::mem::take(&mut self.groups);
        let record = Epoch { epoch: self.epoch, loss, score, rate, groups, seconds };
        self.history.push(record.clone());
        Ok(record)
    }

    /// The score of the weights that would be kept now: of the average, if there is one.
    pub(super) fn score(&mut self, task: &mut dyn Task) -> Result<f64, Error> {
        let now = self.average.is_some().then(|| snapshot(task));
        if let Some(average) = &self.average {
            restore(task, &average.values)?;
        }
        let score = task.score()?;
        if self.best.as_ref().is_none_or(|best| score > best.score) {
            self.best = Some(Best { score, weights: snapshot(task) });
        }
        now.map_or(Ok(()), |now| restore(task, &now))?;
        Ok(score)
    }

    /// Loads the chosen weights into the networks.
    pub(super) fn keep(&self, task: &mut dyn Task, settings: &Settings) -> Result<(), Error> {
        match (&self.best, &self.average) {
            (Some(best), _) if settings.keep == Keep::Best => restore(task, &best.weights),
            (_, Some(average)) => restore(task, &average.values),
            _ => Ok(()),
        }
    }

    /// Writes the checkpoint, if it has a path.
    pub(super) fn save(&self, task: &mut dyn Task, fingerprint: &str, files: &Files) -> Result<(), Error> {
        let Some(path) = &files.checkpoint else { return Ok(()) };
        let header = Header {
            epoch: self.epoch,
            step: self.step,
            groups: self.groups,
            adam_steps: self.adam.steps,
            average_steps: self.average.as_ref().map_or(0, |average| average.steps),
            best: self.best.as_ref().map(|best| best.score),
            loss: self.loss_so_far(),
            history: self.history.clone(),
        };
        let header = serde_json::to_string(&header).expect("plain numbers");
        let weights = snapshot(task);
        let mut arrays: Vec<&[f32]> = weights.iter().map(Vec::as_slice).collect();
        arrays.extend(self.adam.moments.iter().flatten().map(Vec::as_slice));
        arrays.extend(self.average.iter().flat_map(|average| &average.values).map(Vec::as_slice));
        arrays.extend(self.best.iter().flat_map(|best| &best.weights).map(Vec::as_slice));
        Checkpoint::write(path, fingerprint, &header, &arrays)
    }

    fn load(&mut self, task: &mut dyn Task, saved: Checkpoint) -> Result<(), Error> {
        let broken = || Error::CheckpointContent { path: saved.path.clone() };
        let header: Header = serde_json::from_str(&saved.header).map_err(|_| broken())?;
        let mut arrays = saved.arrays.into_iter();
        let mut like = |wanted: &[Vec<f32>]| -> Option<Vec<Vec<f32>>> {
            let taken: Vec<Vec<f32>> = arrays.by_ref().take(wanted.len()).collect();
            let sizes = |arrays: &[Vec<f32>]| arrays.iter().map(Vec::len).collect::<Vec<_>>();
            (sizes(&taken) == sizes(wanted)).then_some(taken)
        };
        let weights = snapshot(task);
        let now = like(&weights).ok_or_else(broken)?;
        for moments in &mut self.adam.moments {
            let loaded = like(moments.as_slice()).ok_or_else(broken)?;
            *moments = loaded.try_into().map_err(|_| broken())?;
        }
        if let Some(average) = &mut self.average {
            average.values = like(&weights).ok_or_else(broken)?;
            average.steps = header.average_steps;
        }
        if let Some(score) = header.best {
            self.best = Some(Best { score, weights: like(&weights).ok_or_else(broken)? });
        }
        restore(task, &now)?;
        self.adam.steps = header.adam_steps;
        (self.epoch, self.step, self.groups) = (header.epoch, header.step, header.groups);
        self.earlier_loss = header.loss;
        self.history = header.history;
        Ok(())
    }
}

fn snapshot(task: &mut dyn Task) -> Vec<Vec<f32>> {
    task.networks().iter().flat_map(Network::snapshot).collect()
}

fn restore(task: &mut dyn Task, weights: &[Vec<f32>]) -> Result<(), Error> {
    let mut rest = weights;
    for network in task.networks() {
        let (own, others) = rest.split_at(network.is_parameter().count().min(rest.len()));
        network.restore(own)?;
        rest = others;
    }
    Ok(())
}
