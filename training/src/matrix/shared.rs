//! A matrix in shares that separate processes run: each cell has a result file of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use parm_grids::{Cell as GridCell, Folder, Product, Record, Share};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::deployed::Bases;
use super::run::{Loaded, Runner, lock};
use super::{Cell, Matrix, Outcome};
use crate::Error;
use crate::data::Samples;

/// The kind of grid in result files.
pub const GRID: &str = "matrix";

/// The parts of an outcome that differ from run to run.
#[derive(Serialize, Deserialize)]
struct Timings {
    costs: BTreeMap<String, f64>,
    seconds: f64,
}

/// The cells of a share without results, with their data.
struct Prepared {
    /// The data by name.
    data: BTreeMap<String, Arc<Loaded>>,
    /// Digests of the data by name.
    digests: BTreeMap<String, String>,
    /// Each cell in both forms.
    cells: Vec<(GridCell, Cell)>,
}

impl Matrix {
    /// Returns the cells of the grid without digests, which need the data.
    pub fn grid(&self) -> Vec<GridCell> {
        let cell =
            |cell: &Cell| GridCell { key: cell.key(self), name: cell.to_string(), inputs: BTreeMap::new() };
        self.cells().iter().map(cell).collect()
    }
}

impl Runner<'_> {
    /// Runs the cells with these keys, of a share, that have no result. An error ends the run.
    pub fn run_share(&self, folder: &Folder, share: Share, keys: &BTreeSet<String>) -> Result<(), Error> {
        let Prepared { data, digests, mut cells } = self.prepared(folder, keys)?;
        let bases = Bases::of_share(share, digests);
        cells.reverse();
        let (left, failed) = (Mutex::new(cells), Mutex::new(None));
        let work = || -> Result<(), Error> {
            while !self.stop.is_requested() {
                let (next, count) = {
                    let mut left = lock(&left);
                    (left.pop(), left.len())
                };
                let Some((grid, cell)) = next else { break };
                self.observer.began(&cell, count);
                let outcome = self.cell(&cell, &data[&cell.data], &bases)?;
                folder.keep(&grid, product(&outcome))?;
                self.observer.finished(&outcome);
            }
            Ok(())
        };
        self.on_threads(&|| {
            if let Err(error) = work() {
                lock(&failed).get_or_insert(error);
                // The other threads stop at their next step, with checkpoints.
                self.stop.request();
            }
        })?;
        failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn prepared(&self, folder: &Folder, keys: &BTreeSet<String>) -> Result<Prepared, Error> {
        let mut data = BTreeMap::new();
        let mut digests = BTreeMap::new();
        let mut cells = Vec::new();
        for (mut grid, cell) in self.matrix.grid().into_iter().zip(self.matrix.cells()) {
            if !keys.contains(&grid.key) {
                continue;
            }
            if !data.contains_key(&cell.data) {
                let loaded = self.load(&cell)?;
                let of = format!("{}{}", samples_digest(&loaded.train), samples_digest(&loaded.test));
                digests.insert(cell.data.clone(), parm_grids::digest(of.as_bytes()));
                data.insert(cell.data.clone(), Arc::new(loaded));
            }
            let input = self.matrix.data[&cell.data].input(&cell.data);
            grid.inputs.insert(input, digests[&cell.data].clone());
            if !folder.has_result(&grid)? {
                cells.push((grid, cell));
            }
        }
        Ok(Prepared { data, digests, cells })
    }
}

impl Outcome {
    /// Returns the line of `outcomes.jsonl` for a result file, and the outcome. Numbers keep their digits.
    pub(super) fn of(record: &Record) -> Result<(String, Self), serde_json::Error> {
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(record.result.get())?;
        fields.extend(serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(record.timings.get())?);
        let line = serde_json::to_string(&fields)?;
        let outcome = serde_json::from_str(&line)?;
        Ok((line, outcome))
    }
}

fn product(outcome: &Outcome) -> Product {
    let timings = Timings { costs: outcome.costs.clone(), seconds: outcome.seconds };
    let result = Outcome { costs: BTreeMap::new(), seconds: 0.0, ..outcome.clone() };
    let text = |value: Result<String, serde_json::Error>| value.expect("plain values");
    Product { result: text(serde_json::to_string(&result)), timings: text(serde_json::to_string(&timings)) }
}

/// A digest of rows as training sees them, so that the form of their files does not matter.
fn samples_digest(samples: &Samples) -> String {
    let mut digest = Sha256::new();
    for array in [Some(&samples.inputs), samples.values.as_ref()].into_iter().flatten() {
        array.shape().iter().for_each(|&size| digest.update((size as u64).to_le_bytes()));
        digest.update(bytemuck::cast_slice::<f32, u8>(array.data()));
    }
    samples.labels.iter().flatten().for_each(|&label| digest.update((label as u64).to_le_bytes()));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
