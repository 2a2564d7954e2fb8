//! Runs a matrix of trainings: `cargo run --release --example matrix -- FILE DATA RESULTS [JOBS]`.
//!
//! `.. -- render PAGE RESULTS FILE..` writes the page of some. `parm train matrix` does the same and more; this
//! builds in a fraction of the time. Here a deployed model in a file is interpreted, whereas the command runs it on
//! an engine, and nothing is timed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parm_parity_models::onnx::{Limits, Model};
use parm_training::fit::Stop;
use parm_training::matrix::{Cell, Matrix, MatrixObserver, Outcome, Place, Results, Runner, render};
use parm_training::{Array, Device, Error, Network, Teacher};

struct Lines;

impl MatrixObserver for Lines {
    fn began(&self, cell: &Cell, left: usize) {
        eprintln!("{cell}: begins, {left} left");
    }

    fn finished(&self, outcome: &Outcome) {
        let Outcome { cell, available, degraded, seconds, .. } = outcome;
        eprintln!("{cell}: A_a {available:.4} A_d {degraded:.4} in {seconds:.0} s");
    }
}

/// Rows per run of an interpreted model: some models have large intermediate values.
const CHUNK: usize = 16;

struct Interpreted(Network);

impl Teacher for Interpreted {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        let (count, mut said) = (rows.shape()[0], Vec::new());
        for start in (0..count).step_by(CHUNK) {
            said.extend(
                Teacher::predict(&self.0, &rows.range(start, (start + CHUNK).min(count)))?.into_data(),
            );
        }
        let values = said.len() / count.max(1);
        Array::new(vec![count, values], said).ok_or(Error::OutputKind)
    }
}

fn interpreted(path: &Path) -> Result<Box<dyn Teacher>, Error> {
    Ok(Box::new(Interpreted(Network::new(Model::open(path, &Limits::default())?, Device::Cpu)?)))
}

type Failure = Box<dyn std::error::Error>;

fn read(file: &Path) -> Result<Matrix, Failure> {
    Ok(Matrix::parse(&std::fs::read_to_string(file)?, file)?)
}

fn page(mut arguments: impl Iterator<Item = PathBuf>) -> Result<(), Failure> {
    let (page, results) = (arguments.next().ok_or("PAGE")?, arguments.next().ok_or("RESULTS")?);
    let matrices: Vec<Matrix> = arguments.map(|file| read(&file)).collect::<Result<_, _>>()?;
    Ok(std::fs::write(page, render(&matrices, &Results::open(&results)?))?)
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("render").is_some() {
        return page(arguments.map(PathBuf::from));
    }
    let mut path = |what: &str| arguments.next().map(PathBuf::from).ok_or(format!("{what} is missing"));
    let (file, data, results) = (path("FILE")?, path("DATA")?, path("RESULTS")?);
    let jobs = arguments.next().map_or(Ok(1), |jobs| jobs.parse())?;
    let matrix = read(&file)?;
    let place = Place { data, results };
    Runner {
        matrix: &matrix,
        place: &place,
        jobs,
        device: Device::Cpu,
        ask: &interpreted,
        clock: &|_| BTreeMap::new(),
        observer: &Lines,
        stop: &Stop::default(),
    }
    .run()?;
    Ok(())
}
