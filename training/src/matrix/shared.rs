//! Cells of a matrix that many processes run: each with a lease and a result file of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parm_grids::{Cell as GridCell, Folder, Held, Product, Queue, Record, Selection};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::deployed::Bases;
use super::run::{Loaded, Runner, lock};
use super::{Cell, Matrix, Outcome, Way};
use crate::Error;
use crate::data::Samples;
use crate::fit::Stop;

/// The kind of grid in result files.
pub const GRID: &str = "matrix";

/// Seconds for a number of a row in an epoch, roughly: an estimate before any cell of the kind is finished.
const PACE: f64 = 1e-7;

/// Time between two looks for a lost lease or a request to stop.
const LOOK: Duration = Duration::from_millis(100);

/// The parts of an outcome that differ from run to run.
#[derive(Serialize, Deserialize)]
struct Timings {
    costs: BTreeMap<String, f64>,
    seconds: f64,
}

/// Selected cells with their data.
struct Prepared {
    /// The data by name.
    data: BTreeMap<String, Arc<Loaded>>,
    /// Digests of the data by name.
    digests: BTreeMap<String, String>,
    /// Each cell in both forms.
    cells: Vec<(GridCell, Cell)>,
}

impl Matrix {
    /// Returns the cells of the grid without estimates and digests, which need the data.
    pub fn grid(&self) -> Vec<GridCell> {
        let cell = |cell: &Cell| GridCell {
            key: cell.key(self),
            name: cell.to_string(),
            group: format!("{} {} {}", cell.data, cell.base, cell.recipe),
            estimate_s: 0.0,
            inputs: BTreeMap::new(),
        };
        self.cells().iter().map(cell).collect()
    }
}

impl Runner<'_> {
    /// Returns the selected cells with estimates and digests, after reading their data.
    pub fn measured(&self, selection: &Selection) -> Result<Vec<GridCell>, Error> {
        Ok(self.prepared(selection)?.cells.into_iter().map(|(grid, _)| grid).collect())
    }

    /// Runs the selected cells until every one has a result, here or in another process. An error ends the run.
    pub fn run_shared(&self, folder: &Folder, selection: &Selection) -> Result<(), Error> {
        let Prepared { data, digests, cells } = self.prepared(selection)?;
        let by_key: BTreeMap<String, Cell> =
            cells.iter().map(|(grid, cell)| (grid.key.clone(), cell.clone())).collect();
        let queue = Queue::new(folder, cells.into_iter().map(|(grid, _)| grid).collect());
        let bases = Bases::shared(&self.place.results, folder.leases().limit(), digests)?;
        let failed = Mutex::new(None);
        let work = || -> Result<(), Error> {
            while let Some(held) = queue.next(&|| self.stop.is_requested())? {
                let Some(cell) = by_key.get(&held.cell().key) else { continue };
                self.observer.began(cell, queue.left());
                let began = Instant::now();
                let outcome = self.watched(&held, |runner| runner.cell(cell, &data[&cell.data], &bases));
                if held.is_lost() {
                    // Another process runs it after this one was paused.
                    continue;
                }
                let outcome = outcome?;
                match held.finish(product(&outcome, began.elapsed())) {
                    Err(parm_grids::Error::Lost { .. }) => {}
                    kept => {
                        kept?;
                        self.observer.finished(&outcome);
                    }
                }
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

    /// Runs a cell. Stops this cell alone if its lease is lost, and with all others on request.
    fn watched<T>(&self, held: &Held<'_>, run: impl FnOnce(&Runner<'_>) -> T) -> T {
        let (own, ended) = (Stop::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if held.is_lost() || self.stop.is_requested() {
                        return own.request();
                    }
                    thread::park_timeout(LOOK);
                }
            });
            let _ends = WatchEnd { ended: &ended, watcher: watcher.thread() };
            run(&Runner { stop: &own, ..*self })
        })
    }

    fn prepared(&self, selection: &Selection) -> Result<Prepared, Error> {
        let mut data = BTreeMap::new();
        let mut digests = BTreeMap::new();
        let by_key: BTreeMap<String, Cell> =
            self.matrix.cells().into_iter().map(|cell| (cell.key(self.matrix), cell)).collect();
        let mut cells = Vec::new();
        for mut grid in selection.of(&self.matrix.grid())? {
            let cell = by_key[&grid.key].clone();
            if !data.contains_key(&cell.data) {
                let loaded = self.load(&cell)?;
                let of = format!("{}{}", samples_digest(&loaded.train), samples_digest(&loaded.test));
                digests.insert(cell.data.clone(), parm_grids::digest(of.as_bytes()));
                data.insert(cell.data.clone(), Arc::new(loaded));
            }
            let input = self.matrix.data[&cell.data].input(&cell.data);
            grid.inputs.insert(input, digests[&cell.data].clone());
            grid.estimate_s = self.estimate(&cell, &data[&cell.data]);
            cells.push((grid, cell));
        }
        Ok(Prepared { data, digests, cells })
    }

    fn estimate(&self, cell: &Cell, data: &Loaded) -> f64 {
        let epochs = match self.matrix.way(cell) {
            Way::Parity(recipe) => recipe.run.epochs,
            Way::Code(recipe) => recipe.run.epochs,
        };
        data.train.inputs.data().len() as f64 * epochs as f64 * PACE
    }
}

/// Ends the watch of a cell when it is dropped, also after a panic: the scope waits for the watcher, and the cell's lease would be
/// renewed for ever.
struct WatchEnd<'a> {
    ended: &'a AtomicBool,
    watcher: &'a Thread,
}

impl Drop for WatchEnd<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.watcher.unpark();
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

fn product(outcome: &Outcome, took: Duration) -> Product {
    let timings = Timings { costs: outcome.costs.clone(), seconds: outcome.seconds };
    let result = Outcome { costs: BTreeMap::new(), seconds: 0.0, ..outcome.clone() };
    let text = |value: Result<String, serde_json::Error>| value.expect("plain values");
    Product {
        result: text(serde_json::to_string(&result)),
        timings: text(serde_json::to_string(&timings)),
        took_ms: took.as_millis() as u64,
    }
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
