//! From flags to the settings and the surroundings of a run.

use std::path::Path;

use anyhow::Context;
use parm_training::fit::{Files, Settings};
use parm_training::{Augmentation, Device, Shape};
use serde::de::DeserializeOwned;

use crate::cli::train::{Course, Run};

/// Where a run's numbers are kept in a recipe.
pub struct Numbers<'a> {
    pub run: &'a mut Settings,
    pub held_out: &'a mut usize,
    /// `None` where nothing is changed between epochs.
    pub augment: Option<&'a mut Augmentation>,
}

/// The recipe in the file that the flags name, or the default.
pub fn recipe<T: Default + DeserializeOwned>(flags: &Run) -> anyhow::Result<T> {
    let Some(path) = &flags.recipe else { return Ok(T::default()) };
    let named = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(named)?;
    toml::from_str(&text).with_context(named)
}

/// Lets the flags override what the recipe says.
pub fn apply(flags: &Run, numbers: Numbers<'_>) {
    let Numbers { run, held_out, augment } = numbers;
    set(&mut run.epochs, flags.epochs);
    set(&mut run.batch, flags.batch);
    set(&mut run.rate, flags.rate);
    set(&mut run.warm_up, flags.warm_up);
    set(&mut run.weight_decay, flags.weight_decay);
    set(&mut run.average, flags.average);
    set(&mut run.seed, flags.seed);
    set(held_out, flags.held_out);
    let shape = flags.shape.map(|shape| match shape {
        Course::Constant => Shape::Constant,
        Course::Cosine => Shape::Cosine,
    });
    set(&mut run.shape, shape);
    if let Some(augment) = augment {
        set(&mut augment.shift, flags.shift);
        augment.flip |= flags.flip;
    }
}

/// Replaces a setting that a flag gives.
pub fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

/// The files of the run called `name`.
pub fn files(runs: &Path, name: &str) -> Files {
    let path = |end: &str| Some(runs.join(format!("{name}.{end}")));
    Files { checkpoint: path("checkpoint"), metrics: path("jsonl"), curves: path("svg") }
}

/// The device that the flags name.
pub fn device(flags: &Run) -> anyhow::Result<Device> {
    Ok(flags.device.parse()?)
}

/// Gives the run its threads. Once a process.
pub fn threads(flags: &Run) -> anyhow::Result<()> {
    let Some(threads) = flags.threads else { return Ok(()) };
    rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global().context("cannot start threads")
}
