//! How a run is made and where it leaves its files.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::history::{self, Epoch};
use crate::Error;
use crate::optimise::{Course, Decay};

/// How a run is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Epochs. Default 40.
    pub epochs: u64,
    /// Groups in a step. Default 64.
    pub batch: usize,
    /// Largest step size. Default 0.001.
    pub rate: f32,
    /// Course of the step size after the warm-up: `constant` or `cosine`. Default `cosine`.
    pub shape: Course,
    /// Epochs in which the step size rises from zero. Default 0.
    pub warm_up: f32,
    /// Pull of the weights towards zero. Default 0.00001.
    pub weight_decay: f32,
    /// Where that pull acts: `coupled` (Adam) or `decoupled` (AdamW). Default `coupled`.
    pub decay: Decay,
    /// Share of a running average of the weights that stays at each step; the average is what is kept. Default 0: none.
    pub average: f32,
    /// Which weights are kept: those of the `best` epoch on held-out data, or the `last`. Default `best`.
    pub keep: Keep,
    /// Epochs between two measurements on held-out data. Default 1.
    pub score_every: u64,
    /// Epochs between two checkpoints. Default 5.
    pub save_every: u64,
    /// Seed of everything random. Default 1.
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

/// Which weights are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Those of the epoch that was best on held-out data.
    #[default]
    Best,
    /// Those of the last epoch.
    Last,
}

/// Where a run leaves its files. What is not given is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Everything that is needed to go on.
    pub checkpoint: Option<PathBuf>,
    /// A line of JSON for each epoch.
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

    /// Removes the checkpoint: the run is over and its results are written.
    pub fn forget_checkpoint(&self) {
        if let Some(path) = &self.checkpoint {
            _ = fs::remove_file(path);
        }
    }
}

impl Settings {
    /// Refuses numbers that no run can be made with.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Setting { message: message.into() });
        match self {
            _ if self.epochs == 0 || self.batch == 0 => wrong("epochs and batch are at least 1"),
            _ if !(self.rate > 0.0 && self.rate.is_finite()) => wrong("rate is a number above 0"),
            _ if !(0.0..1.0).contains(&self.average) => wrong("average is a share below 1"),
            _ if !(self.weight_decay >= 0.0 && self.weight_decay < 1.0) => {
                wrong("weight_decay is a number from 0 on and below 1")
            }
            _ if !(self.warm_up >= 0.0 && f64::from(self.warm_up) <= self.epochs as f64) => {
                wrong("warm_up is a number of epochs, at most all of them")
            }
            _ => Ok(()),
        }
    }
}
