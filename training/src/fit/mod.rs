//! The training loop: steps, epochs, the best weights, checkpoints.
//!
//! A `Task` defines the training; the loop handles networks, gradients and time. All random choices depend on the
//! seed and the epoch, and a checkpoint holds the rest (weights, moments, averages, the best weights). So an
//! interrupted run ends with the same weights as an uninterrupted one.

mod optimiser;
mod schedule;
mod settings;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Tensor;
use schedule::{Fall, Rate, has_converged};
pub use state::CheckpointError;
use state::State;

use crate::graph::{Real, Statistic};
use crate::groups::Groups;
use crate::network::Network;
use crate::{Error, graph};

pub use optimiser::Decay;
pub use schedule::{Course, MOST_EPOCHS};
pub use settings::{Epoch, Files, Keep, Settings};

/// A training task.
pub(crate) trait Task {
    /// The networks that are trained.
    fn networks(&mut self) -> &mut [Network];

    /// The groups of an epoch, in every epoch equally many.
    fn draw(&self, epoch: u64) -> Groups;

    /// The loss over the groups of a step; `leaves` are those of the networks, in order.
    fn step(&mut self, step: Step<'_>, leaves: &[Vec<Real>]) -> Result<StepOutcome, Error>;

    /// Whether the initial weights are trained already: then they may remain the best ones.
    fn is_taught(&self) -> bool;

    /// Examines the networks on held-out data.
    fn examine(&mut self) -> Result<Grade, Error>;
}

/// A step of an epoch.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) epoch: u64,
    /// Its number in the epoch.
    pub(crate) at: u64,
    pub(crate) groups: &'a Groups,
}

/// The result of an examination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grade {
    /// Higher is better.
    pub(crate) score: f64,
    /// The mean loss, if the task has one on held-out data.
    pub(crate) loss: Option<f64>,
}

/// The result of one step.
pub(crate) struct StepOutcome {
    /// The loss, with its computation graph.
    pub(crate) loss: Tensor<1>,
    /// The statistics of batch normalisations, for each network.
    pub(crate) statistics: Vec<Vec<Statistic>>,
}

/// Observes a run.
pub trait Observer {
    /// A run starts or continues at `step` of `steps`, or of fewer: this is called again once it is known how many.
    fn began(&self, _step: u64, _steps: u64) {}

    /// A step over `groups` groups ended.
    fn stepped(&self, _groups: u64) {}

    /// An epoch ended.
    fn finished(&self, _epoch: &Epoch) {}

    /// The run ended after so many epochs. If it has not converged, more of them would improve the networks.
    fn ended(&self, _epochs: u64, _has_converged: bool) {}
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
    keep_memory();
    let steps = task.draw(0).len().div_ceil(settings.batch) as u64;
    let warm_up = (f64::from(settings.warm_up) * steps as f64) as u64;
    let rate = Rate { peak: settings.rate, warm_up, steps, shape: settings.shape };
    let mut state = State::open(task, settings, steps, fingerprint, around.files)?;
    let mut fall = Fall::of(settings, &state.history);
    let length = |fall: Option<Fall>| {
        let epochs = fall.map_or(MOST_EPOCHS, |fall| fall.to);
        epochs.saturating_mul(steps)
    };
    around.observer.began(state.epoch * steps + state.step, length(fall));
    if (state.epoch, state.step) == (0, 0) && settings.keep == Keep::Best && task.is_taught() {
        // Trained weights may be better than all later ones, so they are scored first.
        state.examine(task)?;
    }
    while fall.is_none_or(|fall| state.epoch < fall.to) {
        let groups = task.draw(state.epoch);
        let started = Instant::now();
        while state.step < steps {
            if around.stop.is_requested() {
                state.save(task, fingerprint, around.files)?;
                return Err(Error::Stopped { epoch: state.epoch + 1 });
            }
            let now = rate.at(state.epoch * steps + state.step, fall);
            let from = state.step as usize * settings.batch;
            let groups = groups.range(from, from.saturating_add(settings.batch));
            one_step(task, &mut state, &groups, now)?;
            around.observer.stepped(groups.len() as u64);
        }
        let rate = rate.at(state.epoch * steps, fall);
        let is_last = |state: &State| fall.is_some_and(|fall| state.epoch >= fall.to);
        state.finish_epoch(rate, started)?;
        if is_last(&state) || state.epoch.is_multiple_of(settings.score_every.max(1)) {
            state.grade_epoch(task)?;
        }
        around.observer.finished(&state.history[state.history.len() - 1]);
        around.files.log(&state.history)?;
        if is_last(&state) || state.epoch.is_multiple_of(settings.save_every.max(1)) {
            state.save(task, fingerprint, around.files)?;
        }
        if fall.is_none() {
            fall = Fall::of(settings, &state.history);
            fall.iter().for_each(|_| around.observer.began(state.epoch * steps, length(fall)));
        }
    }
    around.observer.ended(state.epoch, has_converged(settings, &state.history));
    state.keep(task, settings)?;
    Ok(state.history)
}

fn one_step(task: &mut dyn Task, state: &mut State, groups: &Groups, rate: f32) -> Result<(), Error> {
    let leaves: Vec<Vec<Real>> = task.networks().iter().map(Network::leaves).collect();
    let pass = task.step(Step { epoch: state.epoch, at: state.step, groups }, &leaves)?;
    let gradients = pass.loss.backward();
    state.add_loss(pass.loss.without_autodiff());
    let mut first = 0;
    for ((network, leaves), statistics) in task.networks().iter_mut().zip(leaves).zip(pass.statistics) {
        let parameters = network.parameters().count();
        network.change(leaves, &gradients, |number, value, gradient| {
            state.optimiser.step(first + number, rate, value, gradient)
        })?;
        network.follow(statistics)?;
        first += parameters;
    }
    state.step += 1;
    state.groups += groups.len() as u64;
    if let Some(average) = &mut state.average {
        average.follow(weights(task));
    }
    Ok(())
}

/// All weights of a task's networks, in the order of a snapshot.
fn weights(task: &mut dyn Task) -> impl Iterator<Item = Tensor<1>> {
    let values: Vec<Real> = task.networks().iter().flat_map(Network::frozen).collect();
    values.into_iter().map(Real::flat)
}

/// An error outside of a graph: in the loss or in the batch.
pub(crate) fn fault(what: &'static str) -> impl Fn(graph::Problem) -> Error {
    move |problem| Error::Node { node: what.into(), problem }
}

/// Tells the allocator to keep memory that a step frees, since the next step allocates the same sizes. glibc returns
/// large blocks to the kernel, and faulting them in again, page by page, took a fifth of a step.
#[allow(unsafe_code)] // one call into the C library, which has no safe form
fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest block on the heap, glibc's maximum.
        const PIECE: libc::c_int = 32 << 20;
        // SAFETY: both options accept any number, at any time, from any thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        }
    }
}
