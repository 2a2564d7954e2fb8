//! Settings, history and output files of a run.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Course, Decay, MOST_EPOCHS};
use crate::Error;

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Epochs. Default: until the loss and the score on held-out data stop improving, at most 1000.
    pub epochs: Option<u64>,
    /// Groups in a step. Default 64.
    pub batch: usize,
    /// Maximum step size. Default 0.001.
    pub rate: f32,
    /// Schedule of the step size after the warm-up: `constant` or `cosine`. Default `cosine`.
    pub shape: Course,
    /// Epochs in which the step size rises from zero. Default 0.
    pub warm_up: f32,
    /// Weight decay. Default 0.00001.
    pub weight_decay: f32,
    /// Kind of weight decay: `coupled` (Adam) or `decoupled` (AdamW). Default `coupled`.
    pub decay: Decay,
    /// Share of a running average of the weights that each step keeps; the average is the result. Default 0: no
    /// average.
    pub average: f32,
    /// The weights to keep: those of the `best` epoch on held-out data, or the `last`. Default `best`.
    pub keep: Keep,
    /// Epochs between two measurements on held-out data. Default 1.
    pub score_every: u64,
    /// Epochs between two checkpoints. Default 5.
    pub save_every: u64,
    /// Seed of all random choices. Default 1.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            epochs: None,
            batch: 64,
            rate: 1e-3,
            shape: Course::default(),
            warm_up: 0.0,
            weight_decay: 1e-5,
            decay: Decay::default(),
            average: 0.0,
            keep: Keep::default(),
            score_every: 1,
            save_every: 5,
            seed: 1,
        }
    }
}

/// The weights to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Those of the best epoch on held-out data.
    #[default]
    Best,
    /// Those of the last epoch.
    Last,
}

/// One epoch of a run's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: u64,
    /// Mean loss over its steps.
    pub loss: f64,
    /// Score on held-out data; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<f64>,
    /// Loss on held-out data; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_out_loss: Option<f64>,
    /// Step size at its beginning.
    pub rate: f32,
    /// Number of groups.
    pub groups: u64,
    /// Seconds that its steps took.
    pub seconds: f64,
}

/// The output files of a run. A file without a path is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The state that is needed to continue.
    pub checkpoint: Option<PathBuf>,
    /// One line of JSON per epoch.
    pub metrics: Option<PathBuf>,
}

impl Files {
    pub(super) fn log(&self, history: &[Epoch]) -> Result<(), Error> {
        if let Some(path) = &self.metrics {
            let line = |epoch| serde_json::to_string(epoch).expect("plain numbers") + "\n";
            crate::file::write(path, history.iter().map(line).collect::<String>().as_bytes())?;
        }
        Ok(())
    }

    /// Removes the checkpoint after the run's results are written.
    pub fn forget_checkpoint(&self) {
        if let Some(path) = &self.checkpoint {
            _ = fs::remove_file(path);
        }
    }
}

impl Settings {
    /// Maximum epochs of the run.
    pub(super) fn most_epochs(&self) -> u64 {
        self.epochs.unwrap_or(MOST_EPOCHS)
    }

    /// Rejects numbers that are invalid for any run.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        match self {
            _ if self.epochs == Some(0) || self.batch == 0 => wrong("epochs and batch must be at least 1"),
            _ if !(self.rate > 0.0 && self.rate.is_finite()) => wrong("rate must be a number above 0"),
            _ if !(0.0..1.0).contains(&self.average) => wrong("average must be a share from 0 to below 1"),
            _ if !(self.weight_decay >= 0.0 && self.weight_decay < 1.0) => {
                wrong("weight_decay must be a number from 0 to below 1")
            }
            _ if !(self.warm_up >= 0.0 && f64::from(self.warm_up) <= self.most_epochs() as f64) => {
                wrong("warm_up must be a number of epochs, at most all of them")
            }
            _ => Ok(()),
        }
    }
}
