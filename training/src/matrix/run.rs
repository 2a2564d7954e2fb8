//! Running the cells that have no result yet, several at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use super::deployed::Bases;
use super::trial::Trial;
use super::{Cell, Clock, Matrix, Measure, OpenTeacher, Outcome, Results, Way};
use crate::data::Samples;
use crate::fit::{CheckpointError, Files, Stop, Surroundings, Unobserved};
use crate::{Device, Error};

/// Where a matrix finds its data and leaves its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder that data sets are relative to.
    pub data: PathBuf,
    /// The folder of results, base models and checkpoints.
    pub results: PathBuf,
}

/// Whoever watches a matrix.
pub trait MatrixObserver: Sync {
    /// A cell begins; `left` are not yet begun.
    fn began(&self, cell: &Cell, left: usize);

    /// A cell has its result.
    fn finished(&self, outcome: &Outcome);
}

/// Runs a matrix.
pub struct Runner<'a> {
    /// What.
    pub matrix: &'a Matrix,
    /// Where.
    pub place: &'a Place,
    /// Cells at a time; each has its share of the processor's cores.
    pub jobs: usize,
    /// Where it computes.
    pub device: Device,
    /// How a model that is given as a file is asked.
    pub ask: &'a OpenTeacher<'a>,
    /// Who times parity models beside their deployed one.
    pub clock: &'a Clock<'a>,
    /// Who watches.
    pub observer: &'a dyn MatrixObserver,
    /// How it is stopped.
    pub stop: &'a Stop,
}

/// A data set, read once for all cells.
pub(super) struct Loaded {
    pub(super) train: Samples,
    pub(super) test: Samples,
    pub(super) measure: Measure,
}

/// What the threads share.
struct Shared {
    left: Vec<Cell>,
    results: Results,
    data: BTreeMap<String, Arc<Loaded>>,
    failed: Option<Error>,
}

impl Runner<'_> {
    /// Runs every cell without a result. An error ends it, with all other results kept.
    pub fn run(&self) -> Result<Results, Error> {
        let results = Results::open(&self.place.results)?;
        let mut left = self.matrix.cells();
        left.retain(|cell| !results.get(&cell.key(self.matrix)).is_some_and(Outcome::is_whole));
        left.reverse();
        let shared = Mutex::new(Shared { left, results, data: BTreeMap::new(), failed: None });
        let bases = Bases::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    let threads =
                        rayon::ThreadPoolBuilder::new().num_threads((cores / self.jobs.max(1)).max(1));
                    match threads.build() {
                        Ok(pool) => pool.install(|| self.work(&shared, &bases)),
                        Err(error) => {
                            let message = format!("no threads can be had: {error}");
                            lock(&shared).failed = Some(Error::Setting { message });
                        }
                    }
                });
            }
        });
        let shared = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.failed.map_or(Ok(shared.results), Err)
    }

    fn work(&self, shared: &Mutex<Shared>, bases: &Bases) {
        loop {
            let (cell, left) = {
                let mut shared = lock(shared);
                if shared.failed.is_some() || self.stop.is_requested() {
                    return;
                }
                let Some(cell) = shared.left.pop() else { return };
                (cell, shared.left.len())
            };
            self.observer.began(&cell, left);
            let outcome = self.data(shared, &cell).and_then(|data| self.cell(&cell, &data, bases));
            let kept = outcome.and_then(|outcome| {
                lock(shared).results.add(outcome.clone())?;
                self.observer.finished(&outcome);
                Ok(())
            });
            if let Err(error) = kept {
                lock(shared).failed.get_or_insert(error);
                // The others stop at their next step, with checkpoints.
                self.stop.request();
            }
        }
    }

    fn data(&self, shared: &Mutex<Shared>, cell: &Cell) -> Result<Arc<Loaded>, Error> {
        let mut shared = lock(shared);
        if let Some(loaded) = shared.data.get(&cell.data) {
            return Ok(loaded.clone());
        }
        let data = &self.matrix.data[&cell.data];
        let (train, test) = data.read(&self.place.data)?;
        let loaded = Arc::new(Loaded { train, test, measure: data.measure });
        shared.data.insert(cell.data.clone(), loaded.clone());
        Ok(loaded)
    }

    fn cell(&self, cell: &Cell, data: &Loaded, bases: &Bases) -> Result<Outcome, Error> {
        let key = cell.key(self.matrix);
        let deployed = bases.deployed(self, cell, data)?;
        let files = self.files("cells", &key);
        let around = Surroundings { observer: &Unobserved, stop: self.stop, files: &files };
        let (deployed, device, clock) = (&deployed, self.device, self.clock);
        let scratch = &place(&self.place.results, "cells", &key, "onnx");
        let trial = Trial { cell, data, deployed, device, clock, scratch, around };
        let outcome = resumed(&files, || match self.matrix.way(cell) {
            Way::Parity(recipe) => trial.parities(&recipe),
            Way::Code(recipe) => trial.learned(&recipe),
        })?;
        files.forget_checkpoint();
        Ok(Outcome { key, ..outcome })
    }

    pub(super) fn files(&self, kind: &str, key: &str) -> Files {
        let path = |end: &str| Some(place(&self.place.results, kind, key, end));
        Files { checkpoint: path("checkpoint"), metrics: path("jsonl"), curves: path("svg") }
    }
}

/// Runs, from the checkpoint that lies there if it is of use. One that another version of this program wrote, or that is not
/// whole, costs its run no more than a new beginning: the settings are in its name, so it stands for nothing else.
pub(super) fn resumed<T>(files: &Files, run: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let useless = |error: &Error| {
        use CheckpointError::{Damaged, OtherRun};
        matches!(error, Error::Checkpoint(Damaged { .. } | OtherRun { .. }) | Error::CheckpointContent { .. })
    };
    match run() {
        Err(error) if useless(&error) => {
            files.forget_checkpoint();
            run()
        }
        ended => ended,
    }
}

fn place(results: &Path, kind: &str, key: &str, end: &str) -> PathBuf {
    results.join(kind).join(format!("{key}.{end}"))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
