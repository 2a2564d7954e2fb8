//! Compares a device with the CPU: the weights after one training step, from the same start and with the same rows.
//!
//! `cargo run --release -p parm-training --features vulkan --example agree -- vulkan:0 lenet resnet18`

use std::error::Error;

use parm_parity_models::onnx::{Limits, Model};
use parm_random::Random;
use parm_training::base::{self, Base};
use parm_training::data::Samples;
use parm_training::fit::{Files, Settings, Stop, Surroundings, Unobserved};
use parm_training::{Array, Device};

const BATCH: usize = 64;
const HELD_OUT: usize = 16;
const CLASSES: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device: Device = arguments.next().ok_or("usage: agree DEVICE MODEL..")?.parse()?;
    let rows = BATCH + HELD_OUT;
    let pixels = Random::new(1).uniforms(1.0, rows * 784);
    let inputs = Array::new(vec![rows, 1, 28, 28], pixels).ok_or("pixels")?;
    let samples = Samples::new(inputs, Some((0..rows).map(|row| row % CLASSES).collect()))?;
    for model in arguments {
        let [cpu, other] = [Device::Cpu, device].map(|device| step(&samples, &model, device));
        let (cpu, other) = (cpu?, other?);
        let (mut apart, mut size, mut farthest) = (0.0f64, 0.0f64, 0.0f64);
        for (a, b) in cpu.1.iter().zip(&other.1) {
            apart += f64::from(a - b).powi(2);
            size += f64::from(*a).powi(2);
            farthest = farthest.max(f64::from((a - b).abs()));
        }
        eprintln!(
            "{model}: {} weights, relative distance {:.1e}, largest difference {farthest:.1e}, loss {:.6} and {:.6}",
            cpu.1.len(),
            (apart / size).sqrt(),
            cpu.0,
            other.0
        );
    }
    Ok(())
}

/// The loss of one step, and the weights after it.
fn step(samples: &Samples, model: &str, device: Device) -> Result<(f64, Vec<f32>), Box<dyn Error>> {
    let run = Settings { epochs: Some(1), batch: BATCH, ..Settings::default() };
    let base = Base { model: model.into(), held_out: HELD_OUT, run, ..Base::default() };
    let (stop, files) = (Stop::default(), Files::default());
    let around = Surroundings { observer: &Unobserved, stop: &stop, files: &files };
    let trained = base::train(samples, &base, device, around)?;
    let model = Model::from_bytes(trained.model, &Limits::default())?;
    let graph = model.graph()?;
    let weights = graph.initializers.values().filter_map(|tensor| tensor.to_f32().ok()).flatten();
    Ok((trained.history[0].loss, weights.collect()))
}
