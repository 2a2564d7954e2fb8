//! Runs the cells without a result, several at a time.

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

/// The folders of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder that data sets are relative to.
    pub data: PathBuf,
    /// The folder of results, base models and checkpoints.
    pub results: PathBuf,
}

/// Observes a matrix.
pub trait MatrixObserver: Sync {
    /// A cell begins; `left` cells have not begun.
    fn began(&self, cell: &Cell, left: usize);

    /// A cell has its result.
    fn finished(&self, outcome: &Outcome);
}

/// Runs a matrix.
pub struct Runner<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// Its folders.
    pub place: &'a Place,
    /// Number of cells at a time; each gets an equal share of the processor's cores.
    pub jobs: usize,
    /// The device to train on.
    pub device: Device,
    /// Opens supplied models.
    pub ask: &'a OpenTeacher<'a>,
    /// Times parity models against their deployed model.
    pub clock: &'a Clock<'a>,
    /// Receives the events.
    pub observer: &'a dyn MatrixObserver,
    /// Requests the end.
    pub stop: &'a Stop,
}

/// A data set, read once for all cells.
pub(super) struct Loaded {
    pub(super) train: Samples,
    pub(super) test: Samples,
    pub(super) measure: Measure,
}

/// The state that the threads share.
struct Shared {
    left: Vec<Cell>,
    results: Results,
    data: BTreeMap<String, Arc<Loaded>>,
    failed: Option<Error>,
}

impl Runner<'_> {
    /// Runs every cell without a result. An error ends the run; all other results are kept.
    pub fn run(&self) -> Result<Results, Error> {
        let results = Results::open(&self.place.results)?;
        let mut left = self.matrix.cells();
        left.retain(|cell| !results.get(&cell.key(self.matrix)).is_some_and(Outcome::is_whole));
        left.reverse();
        let shared = Mutex::new(Shared { left, results, data: BTreeMap::new(), failed: None });
        let bases = Bases::default();
        self.on_threads(&|| self.work(&shared, &bases))?;
        let shared = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.failed.map_or(Ok(shared.results), Err)
    }

    /// Calls `work` on as many threads as there are jobs. Each has its part of the processor's cores.
    pub(super) fn on_threads(&self, work: &(dyn Fn() + Sync)) -> Result<(), Error> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.max(1);
        let pool = || rayon::ThreadPoolBuilder::new().num_threads((cores / jobs).max(1)).build();
        let failed = |error| Error::Setting { message: format!("cannot start threads: {error}") };
        let pools = (0..jobs).map(|_| pool()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(move || pool.install(work));
            }
        });
        Ok(())
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
                // The other threads stop at their next step, with checkpoints.
                self.stop.request();
            }
        }
    }

    fn data(&self, shared: &Mutex<Shared>, cell: &Cell) -> Result<Arc<Loaded>, Error> {
        let mut shared = lock(shared);
        if let Some(loaded) = shared.data.get(&cell.data) {
            return Ok(loaded.clone());
        }
        let loaded = Arc::new(self.load(cell)?);
        shared.data.insert(cell.data.clone(), loaded.clone());
        Ok(loaded)
    }

    pub(super) fn load(&self, cell: &Cell) -> Result<Loaded, Error> {
        let data = &self.matrix.data[&cell.data];
        let (train, test) = data.read(&self.place.data)?;
        Ok(Loaded { train, test, measure: data.measure })
    }

    pub(super) fn cell(&self, cell: &Cell, data: &Loaded, bases: &Bases) -> Result<Outcome, Error> {
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

/// Runs a cell from its checkpoint if there is a usable one. A checkpoint of another program version, or an
/// incomplete one, is dropped. Its name contains the settings, so it belongs to no other run.
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
