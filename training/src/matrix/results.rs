//! Results as result files, one per cell, and joined as lines of JSON in one append-only file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use parm_grids::{Product, Record};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Cell, GRID};
use crate::Error;

/// The result of a cell's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// [`Cell::key`] at the time of the run.
    pub key: String,
    /// Accuracy of predictions on test data (A_a).
    pub available: f64,
    /// Accuracy of reconstructions, over every single loss of every test group (A_d).
    pub degraded: f64,
    /// The same with two lost predictions per group; for codes with two parities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_lost: Option<f64>,
    /// The standard error of A_a - A_d from pairs: the same rows predicted and reconstructed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_error: Option<f64>,
    /// How often reconstructions agree with the deployed model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// The mean distance between the confidence and the accuracy of reconstructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
    /// Time of a run of a parity model as a share of the deployed model's, by engine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, f64>,
    /// The accuracy of the most frequent class as a constant answer.
    pub constant: f64,
    /// Number of reconstructions in A_d.
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

/// The parts of an outcome that differ from run to run.
#[derive(Serialize, Deserialize)]
struct Timings {
    costs: BTreeMap<String, f64>,
    seconds: f64,
}

impl Outcome {
    /// The content of a result file.
    pub(super) fn product(&self) -> Product {
        let timings = Timings { costs: self.costs.clone(), seconds: self.seconds };
        let result = Self { costs: BTreeMap::new(), seconds: 0.0, ..self.clone() };
        let text = |value: Result<String, serde_json::Error>| value.expect("plain values");
        let (result, timings) = (serde_json::to_string(&result), serde_json::to_string(&timings));
        Product { result: text(result), timings: text(timings) }
    }

    /// The line of `outcomes.jsonl` for a result file, and the outcome. Numbers keep their digits.
    fn of(record: &Record) -> Result<(String, Self), serde_json::Error> {
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(record.result.get())?;
        fields.extend(serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(record.timings.get())?);
        let line = serde_json::to_string(&fields)?;
        let outcome = serde_json::from_str(&line)?;
        Ok((line, outcome))
    }
}

/// The results of a matrix: in `cells/` a file for each cell that ran, and in `outcomes.jsonl` the lines joined from them.
#[derive(Clone, Debug, Default)]
pub struct Results {
    path: PathBuf,
    by_key: BTreeMap<String, Outcome>,
    /// The keys in `outcomes.jsonl`.
    lines: BTreeSet<String>,
}

impl Results {
    /// Reads the existing results. An incomplete last line or file is ignored.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("outcomes.jsonl");
        let failed = |error: std::io::Error| Error::Write { path: path.clone(), message: error.to_string() };
        fs::create_dir_all(folder).map_err(failed)?;
        let (mut by_key, mut lines) = (BTreeMap::new(), BTreeSet::new());
        if path.exists() {
            for line in BufReader::new(fs::File::open(&path).map_err(failed)?).lines() {
                if let Ok(outcome) = serde_json::from_str::<Outcome>(&line.map_err(failed)?) {
                    lines.insert(outcome.key.clone());
                    by_key.insert(outcome.key.clone(), outcome);
                }
            }
        }
        let records = parm_grids::records(folder, GRID)?;
        let shared = records.iter().filter_map(|record| Some(Outcome::of(record).ok()?.1));
        by_key.extend(shared.map(|outcome| (outcome.key.clone(), outcome)));
        Ok(Self { path, by_key, lines })
    }

    /// The result of a key.
    pub fn get(&self, key: &str) -> Option<&Outcome> {
        self.by_key.get(key)
    }

    /// Whether `outcomes.jsonl` has the result of a key.
    pub(super) fn has_line(&self, key: &str) -> bool {
        self.lines.contains(key)
    }

    /// All results.
    pub fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.by_key.values()
    }

    /// Appends the results of joined files that are not in the file, in one write: another join may do the same.
    pub fn join<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) -> Result<(), Error> {
        let read = |record: &Record| {
            let unreadable = |error: serde_json::Error| Error::Matrix {
                path: self.path.clone(),
                message: format!("the result of {}: {error}", record.name),
            };
            Outcome::of(record).map_err(unreadable)
        };
        let mut new = records.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        new.retain(|(_, outcome)| !self.lines.contains(&outcome.key));
        if new.is_empty() {
            return Ok(());
        }
        let failed =
            |error: std::io::Error| Error::Write { path: self.path.clone(), message: error.to_string() };
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path).map_err(failed)?;
        // An incomplete last line stays alone.
        let is_torn = fs::read(&self.path).map_err(failed)?.last().is_some_and(|&byte| byte != b'\n');
        let mut text = String::from(if is_torn { "\n" } else { "" });
        new.iter().for_each(|(line, _)| text.extend([line, "\n"]));
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        for (_, outcome) in new {
            self.lines.insert(outcome.key.clone());
            self.by_key.insert(outcome.key.clone(), outcome);
        }
        Ok(())
    }
}
