//! Runs a matrix of trainings: `cargo run --release --example matrix -- FILE DATA RESULTS [JOBS]`.

use std::path::PathBuf;

use parm_training::fit::Stop;
use parm_training::matrix::{Cell, Matrix, Observer, Outcome, Place, Runner};

struct Lines;

impl Observer for Lines {
    fn began(&self, cell: &Cell, left: usize) {
        eprintln!("{cell}: begins, {left} left");
    }

    fn finished(&self, outcome: &Outcome) {
        let Outcome { cell, available, degraded, seconds, .. } = outcome;
        eprintln!("{cell}: A_a {available:.4} A_d {degraded:.4} in {seconds:.0} s");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut path = |what: &str| arguments.next().map(PathBuf::from).ok_or(format!("{what} is missing"));
    let (file, data, results) = (path("FILE")?, path("DATA")?, path("RESULTS")?);
    let jobs = arguments.next().map_or(Ok(1), |jobs| jobs.parse())?;
    let matrix = Matrix::parse(&std::fs::read_to_string(&file)?, &file)?;
    let place = Place { data, results };
    Runner { matrix: &matrix, place: &place, jobs, observer: &Lines, stop: &Stop::default() }.run()?;
    Ok(())
}
