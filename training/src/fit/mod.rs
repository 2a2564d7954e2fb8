//! The training loop: steps, epochs, the best weights, checkpoints.
//!
//! A `Task` defines the training; the loop handles networks, gradients and time. All random choices depend on the
//! seed and the epoch, and a checkpoint holds the rest (weights, moments, averages, the best weights). So an
//! interrupted run ends with the same weights as an uninterrupted one.

mod checkpoint;
mod curves;
mod history;
mod memory;
mod settings;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Tensor;

pub use checkpoint::CheckpointError;
pub use curves::draw as draw_curves;
pub use history::Epoch;
pub use settings::{Files, Keep, Settings};
use state::State;

use crate::graph::{Real, Statistic};
use crate::network::Network;
use crate::optimise::{Rate, Step};
use crate::{Error, graph};

/// A training task.
pub(crate) trait Task {
    /// The networks that are trained.
    fn networks(&mut self) -> &mut [Network];

    /// Draws the epoch's groups.
    fn begin(&mut self, epoch: u64);

    /// Steps in the epoch.
    fn steps(&self) -> u64;

    /// The loss of step `at` of the epoch; `leaves` are those of the networks, in order.
    fn step(&mut self, at: u64, leaves: &[Vec<Real>]) -> Result<StepOutcome, Error>;

    /// Whether the initial weights are trained already: then they may remain the best ones.
    fn is_taught(&self) -> bool;

    /// The score of the networks on held-out data; higher is better.
    fn score(&mut self) -> Result<f64, Error>;
}

/// The result of one step.
pub(crate) struct StepOutcome {
    /// The loss, with its computation graph.
    pub(crate) loss: Tensor<1>,
    /// The statistics of batch normalisations, for each network.
    pub(crate) statistics: Vec<Vec<Statistic>>,
    /// Number of groups.
    pub(crate) groups: u64,
}

/// Observes a run.
pub trait Observer {
    /// A run starts or continues at `step` of `steps`.
    fn began(&self, step: u64, steps: u64) {
        let _ = (step, steps);
    }

    /// A step over `groups` groups ended.
    fn stepped(&self, groups: u64) {
        let _ = groups;
    }

    /// An epoch ended.
    fn finished(&self, epoch: &Epoch) {
        let _ = epoch;
    }
}

/// Ignores the run's events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// A request to stop from any thread: the run saves a checkpoint and ends.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Requests the end.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The environment of a run.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Receives the run's events.
    pub observer: &'a dyn Observer,
    /// Requests the end of the run.
    pub stop: &'a Stop,
    /// The files that the run writes.
    pub files: &'a Files,
}

/// Trains the task's networks and leaves them with the chosen weights. The history has one entry per epoch.
pub(crate) fn run(
    task: &mut dyn Task,
    settings: &Settings,
    fingerprint: &str,
    around: Surroundings<'_>,
) -> Result<Vec<Epoch>, Error> {
    task.begin(0);
    memory::keep();
    let steps = task.steps();
    let rate = Rate {
        peak: settings.rate,
        warm_up: (f64::from(settings.warm_up) * steps as f64) as u64,
        steps: steps.saturating_mul(settings.epochs),
        shape: settings.shape,
    };
    let mut state = State::open(task, settings, fingerprint, around.files)?;
    around.observer.began(state.epoch * steps + state.step, rate.steps);
    if (state.epoch, state.step) == (0, 0) && settings.keep == Keep::Best && task.is_taught() {
        // Trained weights may be better than all later ones, so they are scored first.
        state.score(task)?;
    }
    while state.epoch < settings.epochs {
        task.begin(state.epoch);
        let started = Instant::now();
        while state.step < steps {
            if around.stop.is_requested() {
                state.save(task, fingerprint, around.files)?;
                return Err(Error::Stopped { epoch: state.epoch + 1, epochs: settings.epochs });
            }
            let now = rate.at(state.epoch * steps + state.step);
            let groups = one_step(task, &mut state, settings, now)?;
            around.observer.stepped(groups);
        }
        let record = state.finish_epoch(task, settings, rate.at(state.epoch * steps), started)?;
        around.observer.finished(&record);
        around.files.log(&state.history)?;
        if state.epoch.is_multiple_of(settings.save_every.max(1)) || state.epoch == settings.epochs {
            state.save(task, fingerprint, around.files)?;
        }
    }
    state.keep(task, settings)?;
    Ok(state.history)
}

fn one_step(task: &mut dyn Task, state: &mut State, settings: &Settings, rate: f32) -> Result<u64, Error> {
    let leaves: Vec<Vec<Real>> = task.networks().iter().map(Network::leaves).collect();
    let pass = task.step(state.step, &leaves)?;
    let gradients = pass.loss.backward();
    state.add_loss(pass.loss.without_autodiff());
    let step = Step { rate, weight_decay: settings.weight_decay, decay: settings.decay };
    let mut update = state.adam.begin(step);
    let mut first = 0;
    for ((network, leaves), statistics) in task.networks().iter_mut().zip(leaves).zip(pass.statistics) {
        let parameters = network.sizes().len();
        network.change(leaves, &gradients, |number, value, gradient| {
            update.apply(first + number, value, gradient)
        });
        network.follow(statistics)?;
        first += parameters;
    }
    state.step += 1;
    state.groups += pass.groups;
    if let Some(average) = &mut state.average {
        let mut follow = average.follow();
        task.networks().iter_mut().for_each(|network| network.show(&mut follow));
    }
    Ok(pass.groups)
}

/// An error outside of a graph: in the loss or in the batch.
pub(crate) fn fault(what: &'static str) -> impl Fn(graph::Problem) -> Error {
    move |problem| Error::Node { node: what.into(), problem }
}
