//! Measures the run time of a parity model as a share of the deployed model's.
//!
//! It uses one thread of each available engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use parm_backend::EngineConfig;
use parm_backend::engine::{self, choose};
use parm_protocol::Tensor;
use parm_training::matrix::Runs;

use super::engine::BlackBox;

/// Largest number of turns of the two models, approximate time for all turns, and smallest number of turns.
const TURNS: usize = 201;
const BUDGET: Duration = Duration::from_secs(2);
const FEWEST: usize = 11;

/// Returns the share by the engine's name. An engine that cannot run a model is reported on stderr and left out.
pub fn shares(runs: Runs<'_>) -> BTreeMap<String, f64> {
    // Without ONNX Runtime only the built-in engine is available.
    let other = choose("auto", &EngineConfig::default())
        .ok()
        .map(|chosen| chosen.name)
        .filter(|name| *name != "tract");
    let measured = std::iter::once("tract").chain(other).filter_map(|engine| match measured(runs, engine) {
        Ok(share) => Some((engine.into(), share)),
        Err(error) => {
            eprintln!("cost on {engine} not measured: {error:#}");
            None
        }
    });
    measured.collect()
}

fn measured(runs: Runs<'_>, engine: &str) -> anyhow::Result<f64> {
    let load = |what: &'static str, path: &Path| {
        engine::by_name(engine, &EngineConfig::default())?.load(path, &EngineConfig::default()).context(what)
    };
    let (deployed, parity) =
        (load("the deployed model", runs.deployed)?, load("the parity model", runs.parity)?);
    let (deployed, parity) = (BlackBox::of(deployed), BlackBox::of(parity));
    let (query, coded) = (deployed.tensors(runs.query)?, parity.tensors(runs.coded)?);
    share(&(deployed, query), &(parity, coded))
}

/// Returns the ratio of the lower quartiles: other load of the machine only adds time, and to some turns more than to others.
fn share(deployed: &(BlackBox, Vec<Tensor>), parity: &(BlackBox, Vec<Tensor>)) -> anyhow::Result<f64> {
    let mut times = [Vec::new(), Vec::new()];
    let began = Instant::now();
    for turn in 0..TURNS {
        if turn >= FEWEST && began.elapsed() > BUDGET {
            break;
        }
        for ((model, row), times) in [deployed, parity].into_iter().zip(&mut times) {
            // A warm-up run: the caches hold the other model's data.
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
