//! Results as lines of JSON: one file, appended to, so that several machines' files can simply be joined.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Cell;
use crate::Error;

/// What a cell's run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// [`Cell::key`] when it was run.
    pub key: String,
    /// Accuracy of predictions on test data (A_a).
    pub available: f64,
    /// Accuracy of reconstructions, over every single loss of every test group (A_d).
    pub degraded: f64,
    /// The same where two predictions of a group are lost; for codes of two parities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_lost: Option<f64>,
    /// The standard error of A_a - A_d, of pairs: the same rows predicted and reconstructed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_error: Option<f64>,
    /// A_a - A_d on rows held out of the training rows: what recipes are chosen by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_held_out: Option<f64>,
    /// How often reconstructions say what the deployed model does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// How far the confidence of reconstructions is from how often they are right, in the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
    /// A run of a parity model as a share of one of the deployed model, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, f64>,
    /// Of the most frequent class as the answer to everything.
    pub constant: f64,
    /// Reconstructions behind A_d.
    pub reconstructions: u64,
    /// Epochs of the run.
    pub epochs: u64,
    /// Groups in an epoch.
    pub groups: usize,
    /// Rows that groups were drawn from.
    pub samples: usize,
    /// Seconds that the steps took.
    pub seconds: f64,
}

impl Outcome {
    /// Whether pairs were kept. Results of versions that did not are run anew.
    pub(super) fn is_whole(&self) -> bool {
        // Of one group there are no pairs to compare.
        self.gap_error.is_some() || self.reconstructions <= self.cell.k as u64
    }
}

/// The results of a matrix, in the folder `results`: `outcomes.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct Results {
    path: PathBuf,
    by_key: BTreeMap<String, Outcome>,
}

impl Results {
    /// Reads what is there. A last line that was cut off is left out.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("outcomes.jsonl");
        let failed = |error: std::io::Error| Error::Write { path: path.clone(), message: error.to_string() };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut by_key = BTreeMap::new();
        if path.exists() {
            for line in BufReader::new(fs::File::open(&path).map_err(failed)?).lines() {
                let line = line.map_err(failed)?;
                if let Ok(outcome) = serde_json::from_str::<Outcome>(&line) {
                    by_key.insert(outcome.key.clone(), outcome);
                }
            }
        }
        Ok(Self { path, by_key })
    }

    /// The result under a key.
    pub fn get(&self, key: &str) -> Option<&Outcome> {
        self.by_key.get(key)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.by_key.values()
    }

    /// Adds a result to the file. The line begins on a line of its own whatever was there.
    pub fn add(&mut self, outcome: Outcome) -> Result<(), Error> {
        let failed =
            |error: std::io::Error| Error::Write { path: self.path.clone(), message: error.to_string() };
        let line = serde_json::to_string(&outcome).expect("plain values");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path).map_err(failed)?;
        let is_torn = fs::read(&self.path).map_err(failed)?.last().is_some_and(|&byte| byte != b'\n');
        let text = if is_torn { format!("\n{line}\n") } else { format!("{line}\n") };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        self.by_key.insert(outcome.key.clone(), outcome);
        Ok(())
    }
}
