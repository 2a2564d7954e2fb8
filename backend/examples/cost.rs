//! What models cost beside each other: `cost ENGINE ROWS MODEL.onnx..` runs them in turn on rows of zeros, again and
//! again, and prints each one's fastest run and median run as multiples of the first model's.
//!
//! A parity model may cost an instance what the deployed model costs it: give the deployed one first.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parm_backend::engine::{self, Options};
use parm_protocol::Tensor;

/// Runs of each model, after a tenth as many to warm up.
const RUNS: usize = 2000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rows, files @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: cost ENGINE ROWS MODEL.onnx..")
    };
    ensure!(!files.is_empty(), "no model is given");
    let rows: usize = rows.parse().context("ROWS is a number")?;
    let engine = engine::by_name(name)?;
    let mut models = Vec::new();
    for file in files {
        let model = engine.load(&PathBuf::from(file), &Options::default())?;
        let inputs: Vec<Tensor> = model.signature().blank(rows)?;
        models.push((model, inputs, Vec::with_capacity(RUNS)));
    }
    for run in 0..RUNS + RUNS / 10 {
        for (model, inputs, times) in &mut models {
            let started = Instant::now();
            model.run(inputs)?;
            if run >= RUNS / 10 {
                times.push(started.elapsed());
            }
        }
    }
    let marks: Vec<[Duration; 2]> = models
        .iter_mut()
        .map(|(_, _, times)| {
            times.sort();
            [times[0], times[times.len() / 2]]
        })
        .collect();
    for (file, [fastest, median]) in files.iter().zip(&marks) {
        let times = |time: Duration, of: Duration| time.as_secs_f64() / of.as_secs_f64();
        println!(
            "{:.2} {:.2}  fastest {fastest:?}, median {median:?}  {file}",
            times(*fastest, marks[0][0]),
            times(*median, marks[0][1]),
        );
    }
    Ok(())
}
