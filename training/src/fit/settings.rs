//! Settings and output files of a run.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::history::{self, Epoch};
use crate::Error;
use crate::optimise::{Course, Decay};

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Epochs. Default 40.
    pub epochs: u64,
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
            epochs: 40,
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

/// The output files of a run. A file without a path is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The state that is needed to continue.
    pub checkpoint: Option<PathBuf>,
    /// One line of JSON per epoch.
    pub metrics: Option<PathBuf>,
    /// A picture of the curves (SVG).
    pub curves: Option<PathBuf>,
}

impl Files {
    pub(super) fn log(&self, history: &[Epoch]) -> Result<(), Error> {
        if let Some(path) = &self.metrics {
            crate::file::write(path, history::lines(history).as_bytes())?;
        }
        if let Some(path) = &self.curves {
            super::curves::draw(path, history)?;
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
    /// Rejects numbers that are invalid for any run.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        match self {
            _ if self.epochs == 0 || self.batch == 0 => wrong("epochs and batch must be at least 1"),
            _ if !(self.rate > 0.0 && self.rate.is_finite()) => wrong("rate must be a number above 0"),
            _ if !(0.0..1.0).contains(&self.average) => wrong("average must be a share from 0 to below 1"),
            _ if !(self.weight_decay >= 0.0 && self.weight_decay < 1.0) => {
                wrong("weight_decay must be a number from 0 to below 1")
            }
            _ if !(self.warm_up >= 0.0 && f64::from(self.warm_up) <= self.epochs as f64) => {
                wrong("warm_up must be a number of epochs, at most all of them")
            }
            _ => Ok(()),
        }
    }
}
