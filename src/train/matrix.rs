//! `parm train matrix`: runs the missing trainings of matrix files.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use parm_training::matrix::{Cell, Matrix, MatrixObserver, Outcome, Place, Results, Runner, render};
use parm_training::{Device, Error, Teacher};

use super::engine::BlackBox;
use super::{clock, stop};
use crate::Failure;
use crate::cli::train as flags;

/// Runs the cells without a result, or renders the results so far.
pub fn main(given: &flags::Matrix) -> Result<(), Failure> {
    let matrices = matrices(given).map_err(Failure::Configuration)?;
    let device = given.device.parse().map_err(|error: Error| Failure::Configuration(error.into()))?;
    match &given.render {
        Some(path) => write(given, &matrices, path).map_err(Failure::Run),
        None => run(given, device, &matrices).map_err(Failure::Run),
    }
}

fn matrices(given: &flags::Matrix) -> anyhow::Result<Vec<Matrix>> {
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Matrix::parse(&text, path)?)
    };
    given.files.iter().map(read).collect()
}

fn run(given: &flags::Matrix, device: Device, matrices: &[Matrix]) -> anyhow::Result<()> {
    let stop = stop::on_signals()?;
    let place = Place { data: given.data.clone(), results: given.results.clone() };
    for matrix in matrices {
        let runner = Runner {
            matrix,
            place: &place,
            jobs: given.jobs,
            device,
            ask: &ask,
            clock: &clock::shares,
            observer: &CellLines,
            stop: &stop,
        };
        runner.run()?;
        if stop.is_requested() {
            anyhow::bail!("stopped: run the command again to continue");
        }
    }
    Ok(())
}

fn write(given: &flags::Matrix, matrices: &[Matrix], path: &std::path::Path) -> anyhow::Result<()> {
    let results = Results::open(&given.results)?;
    std::fs::write(path, render(matrices, &results)).with_context(|| path.display().to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}: {} results", path.display(), results.all().count())?;
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
