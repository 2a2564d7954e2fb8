//! Measures a training step (forward, loss, backward, Adam) at batch 64, in milliseconds.
//!
//! `cargo run --release --example step -- [MODEL..]`. A name ending in `+K` is a parity model for groups of K with a
//! slot for each; `sentences:FOLDER` is the encoder with a head that `lab/interop/teachers/sections.py` writes there.
//! `step.py` does the same in PyTorch. `vulkan:0` and the like name another device.

use std::error::Error;
use std::path::Path;

use parm_parity_models::onnx::{Limits, Model};
use parm_random::Random;
use parm_training::base::{self, Base};
use parm_training::data::{Limit, Samples};
use parm_training::fit::{Epoch, Files, Settings, Stop, Surroundings, Unobserved};
use parm_training::parity::{self, Materials, ParityRecipe};
use parm_training::{Array, Device};

const ROWS: usize = 3840;
const HELD_OUT: usize = 128;
const BATCH: usize = 64;
const CLASSES: usize = 10;
const SENTENCES: usize = 9 * BATCH;
const EPOCHS: u64 = 4;
const MODELS: [&str; 5] = ["mlp", "lenet", "resnet-small", "lenet+4", "resnet-small+4"];

fn main() -> Result<(), Box<dyn Error>> {
    let (devices, given): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.parse::<Device>().is_ok());
    let models = if given.is_empty() { MODELS.map(String::from).to_vec() } else { given };
    let device = devices.first().map_or(Ok(Device::Cpu), |device| device.parse())?;
    let pixels = Random::new(1).uniforms(1.0, ROWS * 784);
    let inputs = Array::new(vec![ROWS, 1, 28, 28], pixels).ok_or("pixels")?;
    let labels = (0..ROWS).map(|row| row % CLASSES).collect();
    let samples = Samples::new(inputs, Some(labels))?;
    for model in models {
        if let Some(folder) = model.strip_prefix("sentences:") {
            say(&model, &sentences(Path::new(folder), device)?);
            continue;
        }
        let history = match model.split_once('+') {
            Some((deployed, k)) => parity_model(&samples, deployed, k.parse()?, device)?,
            None => base_model(&samples, &model, EPOCHS, device)?.history,
        };
        say(&model, &history);
    }
    Ok(())
}

fn say(model: &str, history: &[Epoch]) {
    let fastest = history.iter().map(|epoch| epoch.seconds / epoch.groups as f64 * BATCH as f64);
    let fastest = fastest.fold(f64::INFINITY, f64::min);
    eprintln!("{model}: {:.2} ms a step, {:.0} rows a second", 1e3 * fastest, BATCH as f64 / fastest);
}

/// Fine-tunes an encoder: a few steps, as each takes a while.
fn sentences(folder: &Path, device: Device) -> Result<Vec<Epoch>, Box<dyn Error>> {
    let [ids, mask, labels] = ["ids", "mask", "labels"].map(|part| folder.join(format!("train-{part}.npy")));
    let samples = Samples::npys(&[&ids, &mask], Some(&labels), Limit::default())?.range(0..SENTENCES)?;
    let graph = Model::open(&folder.join("model.onnx"), &Limits::default())?;
    let run = Settings { epochs: Some(2), batch: BATCH, score_every: 2, ..Settings::default() };
    let base = Base { held_out: BATCH, run, ..Base::default() };
    alone(|around| Ok(base::tune(&samples, &base, &graph, device, around)?.history))
}

fn base_model(
    samples: &Samples,
    model: &str,
    epochs: u64,
    device: Device,
) -> Result<base::TrainedBase, Box<dyn Error>> {
    let run = Settings { epochs: Some(epochs), batch: BATCH, score_every: epochs, ..Settings::default() };
    let base = Base { model: model.into(), held_out: HELD_OUT, run, ..Base::default() };
    alone(|around| Ok(base::train(samples, &base, device, around)?))
}

fn parity_model(
    samples: &Samples,
    deployed: &str,
    k: usize,
    device: Device,
) -> Result<Vec<Epoch>, Box<dyn Error>> {
    let deployed = base_model(samples, deployed, 1, device)?.model;
    let graph = Model::from_bytes(deployed, &Limits::default())?;
    let run = Settings { epochs: Some(EPOCHS), batch: BATCH, score_every: EPOCHS, ..Settings::default() };
    let recipe = ParityRecipe { k, passes: k as f32, held_out: HELD_OUT, run, ..ParityRecipe::default() };
    // An untrained network contradicts every file of labels, so it is the only teacher.
    let rows = Samples::new(samples.inputs.clone(), None)?;
    let materials = Materials { samples: &rows, graph: &graph, teacher: None, outputs: None };
    alone(|around| Ok(parity::train(materials, &recipe, device, around)?.history))
}

/// Runs a training without an observer and without files.
fn alone<T>(train: impl FnOnce(Surroundings<'_>) -> Result<T, Box<dyn Error>>) -> Result<T, Box<dyn Error>> {
    let (stop, files) = (Stop::default(), Files::default());
    train(Surroundings { observer: &Unobserved, stop: &stop, files: &files })
}
