//! The state of a run between two steps, saved to checkpoints and restored from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::optimiser::{Average, Optimiser};
use super::{Epoch, Files, Grade, Keep, Settings, Task, weights};
use crate::network::Network;
use crate::{Error, file};

/// The state of a run.
pub(super) struct State {
    /// Steps of an epoch.
    steps: u64,
    /// Finished epochs.
    pub(super) epoch: u64,
    /// Finished steps of this epoch.
    pub(super) step: u64,
    /// Number of groups in this epoch.
    pub(super) groups: u64,
    pub(super) optimiser: Optimiser,
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
    steps: u64,
    best: Option<f64>,
    loss: f64,
    history: Vec<Epoch>,
}

impl State {
    /// Restores the state of the checkpoint, or starts a new run.
    pub(super) fn open(
        task: &mut dyn Task,
        settings: &Settings,
        steps: u64,
        fingerprint: &str,
        files: &Files,
    ) -> Result<Self, Error> {
        let average =
            (settings.average > 0.0).then(|| Average::new(settings.average, weights(task).collect()));
        let parameters = task.networks().iter().map(|network| network.parameters().count()).sum();
        let mut state = Self {
            steps,
            epoch: 0,
            step: 0,
            groups: 0,
            optimiser: Optimiser::new(settings, parameters),
            average,
            history: Vec::new(),
            best: None,
            loss: None,
            earlier_loss: 0.0,
        };
        if let Some(path) = files.checkpoint.as_ref().filter(|path| path.exists()) {
            let saved = Checkpoint::read(path, fingerprint)?;
            let broken = Error::CheckpointContent { path: path.clone() };
            state.load(task, parameters, saved).ok_or(broken)??;
        }
        Ok(state)
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

    /// Adds the epoch to the history and starts the next.
    pub(super) fn finish_epoch(&mut self, rate: f32, started: Instant) -> Result<(), Error> {
        let (seconds, steps) = (started.elapsed().as_secs_f64(), self.step);
        let loss = self.loss_so_far() / steps.max(1) as f64;
        (self.loss, self.earlier_loss) = (None, 0.0);
        if !loss.is_finite() {
            return Err(Error::Diverged { epoch: self.epoch + 1, rate });
        }
        self.epoch += 1;
        self.step = 0;
        let groups = std::mem::take(&mut self.groups);
        let (epoch, score, held_out_loss) = (self.epoch, None, None);
        self.history.push(Epoch { epoch, loss, score, held_out_loss, rate, groups, seconds });
        Ok(())
    }

    /// Examines the networks for the last epoch of the history.
    pub(super) fn grade_epoch(&mut self, task: &mut dyn Task) -> Result<(), Error> {
        let Grade { score, loss } = self.examine(task)?;
        if let Some(epoch) = self.history.last_mut() {
            (epoch.score, epoch.held_out_loss) = (Some(score), loss);
        }
        Ok(())
    }

    /// Examines the weights that would be kept now (the average, if there is one), and keeps the best ones.
    pub(super) fn examine(&mut self, task: &mut dyn Task) -> Result<Grade, Error> {
        let now = self.average.is_some().then(|| snapshot(task));
        if let Some(average) = &self.average {
            restore(task, &average.snapshot())?;
        }
        let grade = task.examine()?;
        if self.best.as_ref().is_none_or(|best| grade.score > best.score) {
            self.best = Some(Best { score: grade.score, weights: snapshot(task) });
        }
        now.map_or(Ok(()), |now| restore(task, &now))?;
        Ok(grade)
    }

    /// Loads the chosen weights into the networks.
    pub(super) fn keep(&self, task: &mut dyn Task, settings: &Settings) -> Result<(), Error> {
        match (&self.best, &self.average) {
            (Some(best), _) if settings.keep == Keep::Best => restore(task, &best.weights),
            (_, Some(average)) => restore(task, &average.snapshot()),
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
            steps: self.epoch * self.steps + self.step,
            best: self.best.as_ref().map(|best| best.score),
            loss: self.loss_so_far(),
            history: self.history.clone(),
        };
        let header = serde_json::to_string(&header).expect("plain numbers");
        let mut arrays = snapshot(task);
        arrays.extend(self.optimiser.moments());
        arrays.extend(self.average.iter().flat_map(Average::snapshot));
        arrays.extend(self.best.iter().flat_map(|best| best.weights.clone()));
        Checkpoint { header, arrays }.write(path, fingerprint)
    }

    /// Continues from a checkpoint; `None` if its content does not fit.
    fn load(
        &mut self,
        task: &mut dyn Task,
        parameters: usize,
        saved: Checkpoint,
    ) -> Option<Result<(), Error>> {
        let header: Header = serde_json::from_str(&saved.header).ok()?;
        let sizes: Vec<usize> = snapshot(task).iter().map(Vec::len).collect();
        let mut arrays = saved.arrays.into_iter();
        let now: Vec<Vec<f32>> = arrays.by_ref().take(sizes.len()).collect();
        let moments: Vec<Vec<f32>> = arrays.by_ref().take(2 * parameters).collect();
        let device = task.networks().first()?.device().clone();
        self.optimiser.resume(usize::try_from(header.steps).ok()?, &moments, &device);
        let fit = |arrays: &[Vec<f32>]| arrays.iter().map(Vec::len).eq(sizes.iter().copied());
        let mut like_weights = || {
            let taken: Vec<Vec<f32>> = arrays.by_ref().take(sizes.len()).collect();
            fit(&taken).then_some(taken)
        };
        if let Some(average) = &mut self.average {
            average.resume(header.steps, &like_weights()?, &device);
        }
        if let Some(score) = header.best {
            self.best = Some(Best { score, weights: like_weights()? });
        }
        (self.epoch, self.step, self.groups) = (header.epoch, header.step, header.groups);
        self.earlier_loss = header.loss;
        self.history = header.history;
        fit(&now).then(|| restore(task, &now))
    }
}

fn snapshot(task: &mut dyn Task) -> Vec<Vec<f32>> {
    task.networks().iter().flat_map(Network::snapshot).collect()
}

fn restore(task: &mut dyn Task, weights: &[Vec<f32>]) -> Result<(), Error> {
    let mut rest = weights;
    for network in task.networks() {
        let (own, others) = rest.split_at(network.weights().min(rest.len()));
        network.restore(own)?;
        rest = others;
    }
    Ok(())
}

const DIGEST: usize = 32;
/// Maximum size of a checkpoint: four times a gigabyte of weights.
const LARGEST: u64 = 4 << 30;

/// An error of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum CheckpointError {
    #[error("cannot read the checkpoint '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{}' is not a complete checkpoint: remove it to start again", path.display())]
    Damaged { path: PathBuf },
    #[error(
        "the checkpoint '{}' belongs to another run (other data, model or settings): remove it, or give another path",
        path.display()
    )]
    OtherRun { path: PathBuf },
}

/// The content of a checkpoint, which is written atomically and verified by a digest.
///
/// The format: the length of an index (little endian) and its JSON, the elements of all arrays, SHA-256 of all that. A
/// fingerprint in the index identifies the run: another model, other data or other settings must not continue from it.
pub(super) struct Checkpoint {
    pub(super) header: String,
    pub(super) arrays: Vec<Vec<f32>>,
}

#[derive(Serialize, Deserialize)]
struct Index {
    fingerprint: String,
    header: String,
    /// The number of elements of each array.
    lengths: Vec<usize>,
}

impl Checkpoint {
    pub(super) fn write(&self, path: &Path, fingerprint: &str) -> Result<(), crate::Error> {
        let lengths = self.arrays.iter().map(Vec::len).collect();
        let index = Index { fingerprint: fingerprint.into(), header: self.header.clone(), lengths };
        let index = serde_json::to_vec(&index).expect("plain values");
        let mut bytes = (index.len() as u64).to_le_bytes().to_vec();
        bytes.extend(index);
        bytes.extend(self.arrays.iter().flatten().flat_map(|value| value.to_le_bytes()));
        let digest = Sha256::digest(&bytes);
        bytes.extend(digest);
        file::write(path, &bytes)
    }

    pub(super) fn read(path: &Path, fingerprint: &str) -> Result<Self, CheckpointError> {
        let unreadable = |message: String| CheckpointError::Read { path: path.into(), message };
        let size = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > LARGEST {
            return Err(unreadable(format!("it has {size} bytes, the limit is {LARGEST}")));
        }
        let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let (index, arrays) = parse(&bytes).ok_or_else(|| CheckpointError::Damaged { path: path.into() })?;
        if index.fingerprint != fingerprint {
            return Err(CheckpointError::OtherRun { path: path.into() });
        }
        Ok(Self { header: index.header, arrays })
    }
}

/// The content of a file; `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<(Index, Vec<Vec<f32>>)> {
    let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
    if Sha256::digest(content)[..] != *digest {
        return None;
    }
    let (length, rest) = content.split_first_chunk::<8>()?;
    let (index, elements) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let index: Index = serde_json::from_slice(index).ok()?;
    let (mut elements, _) = elements.as_chunks::<4>();
    let mut arrays = Vec::with_capacity(index.lengths.len());
    for &length in &index.lengths {
        let (own, others) = elements.split_at_checked(length)?;
        arrays.push(own.iter().map(|value| f32::from_le_bytes(*value)).collect());
        elements = others;
    }
    Some((index, arrays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_is_read_only_when_intact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        let whole = Checkpoint { header: "{}".into(), arrays: vec![vec![1.0, 2.0], vec![]] };
        whole.write(&path, "a run").unwrap();
        let read = Checkpoint::read(&path, "a run").unwrap();
        assert_eq!((read.header, read.arrays), (whole.header, whole.arrays));
        assert_eq!(
            Checkpoint::read(&path, "b run").err(),
            Some(CheckpointError::OtherRun { path: path.clone() })
        );
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(
                Checkpoint::read(&path, "a run").err(),
                Some(CheckpointError::Damaged { path: path.clone() })
            );
        }
    }
}
