//! Milliseconds of a training step (forward, loss, backward, Adam) at batch 64:
//! `cargo run --release --example step -- [MODEL..]`. `step.py` beside it does the same in PyTorch.

use parm_parity_models::onnx::Random;
use parm_training::base::{self, Base};
use parm_training::data::Samples;
use parm_training::fit::{Files, Settings, Stop, Surroundings, Unobserved};
use parm_training::{Array, Device};

const ROWS: usize = 7680;
const CLASSES: usize = 10;
const EPOCHS: u64 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let models = if given.is_empty() { vec!["mlp".to_owned(), "lenet".to_owned()] } else { given };
    let pixels = Random::new(1).uniform(1.0, ROWS * 784);
    let inputs = Array::new(vec![ROWS, 1, 28, 28], pixels).ok_or("pixels")?;
    let labels = (0..ROWS).map(|row| row % CLASSES).collect();
    let samples = Samples::new(inputs, Some(labels))?;
    for model in models {
        let run = Settings { epochs: EPOCHS, score_every: EPOCHS, ..Settings::default() };
        let base = Base { model: model.clone(), held_out: 128, run, ..Base::default() };
        let (stop, files) = (Stop::default(), Files::default());
        let around = Surroundings { observer: &Unobserved, stop: &stop, files: &files };
        let trained = base::train(&samples, &base, Device::Cpu, around)?;
        let fastest = trained.history.iter().map(|epoch| epoch.seconds / epoch.groups as f64 * 64.0);
        let fastest = fastest.fold(f64::INFINITY, f64::min);
        eprintln!("{model}: {:.2} ms a step, {:.0} rows a second", 1e3 * fastest, 64.0 / fastest);
    }
    Ok(())
}
