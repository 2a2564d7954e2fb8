//! A small task for tests of training: classes that a network learns in a second.

use parm_parity_models::onnx::{Limits, Model};
use parm_random::Random;
use parm_training::base::{self, Base};
use parm_training::data::Samples;
use parm_training::fit::{Epoch, Files, Observer, Settings, Stop, Surroundings, Unobserved};
use parm_training::parity::Materials;
use parm_training::{Array, Device, Network};

/// Sides of the images.
pub(crate) const SIDE: usize = 6;
/// Classes.
pub(crate) const CLASSES: usize = 3;

/// Noisy images, each class brighter in rows of its own.
pub(crate) fn samples(rows: usize, seed: u64) -> Samples {
    let mut random = Random::new(seed);
    let mut inputs = random.uniforms(0.35, rows * SIDE * SIDE);
    let labels: Vec<usize> = (0..rows).map(|row| row % CLASSES).collect();
    for (image, &label) in inputs.chunks_exact_mut(SIDE * SIDE).zip(&labels) {
        image[label * 2 * SIDE..(label * 2 + 2) * SIDE].iter_mut().for_each(|pixel| *pixel += 0.5);
    }
    let inputs = Array::new(vec![rows, 1, SIDE, SIDE], inputs).expect("as many pixels");
    Samples::new(inputs, Some(labels)).expect("labels for all rows")
}

/// A short run.
pub(crate) fn run(epochs: u64) -> Settings {
    Settings { epochs: Some(epochs), batch: 16, rate: 3e-3, save_every: 1, ..Settings::default() }
}

/// A trained base model of the task.
pub(crate) fn deployed() -> bytes::Bytes {
    let settings = Base { held_out: 60, run: run(3), ..Base::default() };
    alone(|around| base::train(&samples(600, 1), &settings, Device::Cpu, around)).expect("it trains").model
}

/// The graph of a file.
pub(crate) fn model(bytes: &bytes::Bytes) -> Model {
    Model::from_bytes(bytes.clone(), &Limits::default()).expect("a sound file")
}

/// The network of a graph, for rows like these.
pub(crate) fn network(graph: &Model, rows: &Samples) -> Network {
    Network::new(model(graph.bytes()), Device::Cpu).expect("a network").taking(rows).expect("its rows")
}

/// Rows of a graph that is its own teacher.
pub(crate) fn untaught<'a>(samples: &'a Samples, graph: &'a Model) -> Materials<'a> {
    Materials { samples, graph, teacher: None, outputs: None }
}

/// Runs a training without an observer, a stop or files.
pub(crate) fn alone<T>(run: impl FnOnce(Surroundings<'_>) -> T) -> T {
    run(Surroundings { observer: &Unobserved, stop: &Stop::default(), files: &Files::default() })
}

/// Requests a stop after a number of steps.
pub(crate) struct Impatient<'a> {
    pub(crate) stop: &'a Stop,
    pub(crate) steps: std::cell::Cell<u32>,
}

impl Observer for Impatient<'_> {
    fn stepped(&self, _: u64) {
        let left = self.steps.get().saturating_sub(1);
        self.steps.set(left);
        if left == 0 {
            self.stop.request();
        }
    }

    fn finished(&self, epoch: &Epoch) {
        assert!(epoch.loss.is_finite());
    }
}
