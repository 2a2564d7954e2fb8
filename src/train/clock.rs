//! What a parity model's run takes beside a run of the deployed model, on one thread of each engine at hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use parm_backend::engine::{self, Options, choose};
use parm_protocol::Tensor;
use parm_training::matrix::Runs;

use super::engine::BlackBox;

/// Turns that the two take at most, and about how long all of them may take; fewer than the last are not counted on.
const TURNS: usize = 201;
const BUDGET: Duration = Duration::from_secs(2);
const FEWEST: usize = 11;

/// By the engine's name. A model that an engine does not run costs nothing but a line.
pub fn shares(runs: Runs<'_>) -> BTreeMap<String, f64> {
    // Without ONNX Runtime there is only the engine in the box.
    let other =
        choose("auto", &Options::default()).ok().map(|chosen| chosen.name).filter(|name| *name != "tract");
    let measured = std::iter::once("tract").chain(other).filter_map(|engine| match measured(runs, engine) {
        Ok(share) => Some((engine.into(), share)),
        Err(error) => {
            eprintln!("not timed on {engine}: {error:#}");
            None
        }
    });
    measured.collect()
}

fn measured(runs: Runs<'_>, engine: &str) -> anyhow::Result<f64> {
    let load = |what: &'static str, path: &Path| {
        engine::by_name(engine, &Options::default())?.load(path, &Options::default()).context(what)
    };
    let (deployed, parity) =
        (load("the deployed model", runs.deployed)?, load("the parity model", runs.parity)?);
    let (deployed, parity) = (BlackBox::of(deployed), BlackBox::of(parity));
    let (query, coded) = (deployed.tensors(runs.query)?, parity.tensors(runs.coded)?);
    share(&(deployed, query), &(parity, coded))
}

/// The ratio of two lower quartiles, of turns: what else a machine does only adds time, to some turns more than to others.
fn share(deployed: &(BlackBox, Vec<Tensor>), parity: &(BlackBox, Vec<Tensor>)) -> anyhow::Result<f64> {
    let mut times = [Vec::new(), Vec::new()];
    let began = Instant::now();
    for turn in 0..TURNS {
        if turn >= FEWEST && began.elapsed() > BUDGET {
            break;
        }
        for ((model, row), times) in [deployed, parity].into_iter().zip(&mut times) {
            // What the other left in the processor's caches is not this one's cost.
            model.run(row)?;
            let began = Instant::now();
            model.run(row)?;
            times.push(began.elapsed());
        }
    }
    let [deployed, parity] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 4].as_secs_f64()
    });
    Ok(parity / deployed.max(1e-9))
}
