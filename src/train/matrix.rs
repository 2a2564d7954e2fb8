//! `parm train matrix`: runs the missing trainings of matrix files.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use parm_grids::Share;
use parm_training::matrix::{Cell, GRID, Matrix, MatrixObserver, Outcome, Place, Results, Runner};
use parm_training::{Device, Error, Teacher};

use super::engine::BlackBox;
use super::{clock, progress};
use crate::Failure;
use crate::cli::train as flags;
use crate::grid::{self, Task};

/// Runs the cells without a result, or joins the results so far.
pub fn main(given: &flags::Matrix) -> Result<(), Failure> {
    let matrices = matrices(given).map_err(Failure::Configuration)?;
    let device = given.device.parse().map_err(|error: Error| Failure::Configuration(error.into()))?;
    match Task::of(&given.grid) {
        Task::Whole => run(given, device, &matrices, |runner| Ok(_ = runner.run()?)),
        Task::Join(folders) => join(given, &matrices, &folders),
        Task::Run(part) => share(given, device, &matrices, part),
    }
    .map_err(Failure::Run)
}

fn matrices(given: &flags::Matrix) -> anyhow::Result<Vec<Matrix>> {
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Matrix::parse(&text, path)?)
    };
    given.files.iter().map(read).collect()
}

/// Calls `with` for the runner of each matrix.
fn run(
    given: &flags::Matrix,
    device: Device,
    matrices: &[Matrix],
    mut with: impl FnMut(&Runner<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stop = progress::stop_on_signals()?;
    let place = Place { data: given.data.clone(), results: given.results.clone() };
    for matrix in matrices {
        let runner = Runner {
            matrix,
            place: &place,
            device,
            ask: &ask,
            clock: &clock::shares,
            observer: &CellLines,
            stop: &stop,
        };
        with(&runner)?;
        if stop.is_requested() {
            anyhow::bail!("stopped: run the command again to continue");
        }
    }
    Ok(())
}

fn share(given: &flags::Matrix, device: Device, matrices: &[Matrix], share: Share) -> anyhow::Result<()> {
    let all = cells(matrices);
    let mut wanted: BTreeSet<String> = share.of(&all).into_iter().map(|cell| cell.key).collect();
    eprintln!("share {share}: {} of {} cells", wanted.len(), all.len());
    run(given, device, matrices, |runner| {
        // A cell of several files runs for the first of them.
        let keys = runner.matrix.grid().into_iter().map(|cell| cell.key);
        let keys: BTreeSet<String> = keys.filter(|key| wanted.remove(key)).collect();
        Ok(runner.run_share(&keys)?)
    })
}

/// Returns the cells of all files, each once.
fn cells(matrices: &[Matrix]) -> Vec<parm_grids::Cell> {
    let mut seen = BTreeSet::new();
    let mut cells: Vec<_> = matrices.iter().flat_map(Matrix::grid).collect();
    cells.retain(|cell| seen.insert(cell.key.clone()));
    cells
}

/// Adds the results in the folders to the outcomes of `--results`.
fn join(given: &flags::Matrix, matrices: &[Matrix], folders: &[PathBuf]) -> anyhow::Result<()> {
    let cells = cells(matrices);
    let joined = parm_grids::join(folders, GRID, &cells)?;
    let is_whole = grid::reported(&joined);
    let mut results = Results::open(&given.results)?;
    results.join(cells.iter().filter_map(|cell| joined.records.get(&cell.key)))?;
    let (found, all) = (joined.records.len(), cells.len());
    writeln!(crate::printer::stdout(), "{found} of {all} cells joined in {}", given.results.display())?;
    anyhow::ensure!(is_whole, "joined in part: run the missing shares and join again");
    Ok(())
}

/// Loads a model file as a black box, on the built-in engine.
fn ask(path: &Path) -> Result<Box<dyn Teacher>, Error> {
    let failed = |error: anyhow::Error| Error::Teacher { message: format!("{error:#}") };
    Ok(Box::new(BlackBox::load("tract", path).map_err(failed)?))
}

/// Prints a line on stderr for each cell.
struct CellLines;

impl MatrixObserver for CellLines {
    fn began(&self, cell: &Cell, left: usize) {
        eprintln!("{cell}: started, {left} left after it");
    }

    fn finished(&self, outcome: &Outcome) {
        let Outcome { cell, available, degraded, seconds, .. } = outcome;
        eprintln!("{cell}: A_a {available:.4}, A_d {degraded:.4}, {seconds:.0} s");
    }
}
