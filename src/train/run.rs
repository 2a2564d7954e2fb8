//! Applies flags to the settings and the environment of a run.

use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use parm_training::fit::{Files, Settings};
use parm_training::{Augmentation, Device};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::cli::train::Run;

/// The settings of a run in a recipe that flags override.
pub struct Numbers<'a> {
    pub run: &'a mut Settings,
    pub held_out: &'a mut usize,
    /// `None` for runs without augmentation.
    pub augment: Option<&'a mut Augmentation>,
}

/// Reads the recipe from the file that the flags name, or returns the default.
pub fn recipe<T: Default + DeserializeOwned>(flags: &Run) -> anyhow::Result<T> {
    let Some(path) = &flags.recipe else { return Ok(T::default()) };
    let named = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(named)?;
    toml::from_str(&text).with_context(named)
}

/// Overrides the recipe with the flags.
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
    set(&mut run.shape, flags.shape.map(named));
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

/// Converts the value of a flag to the library's type. Recipes and flags use the same names.
pub fn named<T: DeserializeOwned>(flag: impl ValueEnum) -> T {
    let value = flag.to_possible_value();
    let name: StrDeserializer<'_, serde::de::value::Error> =
        value.as_ref().map_or("", PossibleValue::get_name).into_deserializer();
    T::deserialize(name).expect("a test compares the flags with the library's names")
}

/// Returns the files of the run `name`.
pub fn files(runs: &Path, name: &str) -> Files {
    let path = |end: &str| Some(runs.join(format!("{name}.{end}")));
    Files { checkpoint: path("checkpoint"), metrics: path("jsonl"), curves: path("svg") }
}

/// Returns the device that the flags name.
pub fn device(flags: &Run) -> anyhow::Result<Device> {
    Ok(flags.device.parse()?)
}

/// Starts the run's threads. May be called once in a process.
pub fn threads(flags: &Run) -> anyhow::Result<()> {
    let Some(threads) = flags.threads else { return Ok(()) };
    rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global().context("cannot start threads")
}

#[cfg(test)]
mod tests {
    use parm_encoder::Head;
    use parm_parity_models::bundle::{Meaning, Start};
    use parm_training::code::{CodeLoss, Encoder};
    use parm_training::{Course, Loss};

    use super::*;
    use crate::cli::train as flags;

    /// Checks that the library reads and writes every value of a flag by the same name.
    fn check<F: ValueEnum, T: DeserializeOwned + serde::Serialize>() {
        for value in F::value_variants() {
            let name = value.to_possible_value().expect("no value is hidden").get_name().to_owned();
            let found: T = named(value.clone());
            assert_eq!(serde_json::to_value(found).expect("a name"), name);
        }
    }

    #[test]
    fn every_value_of_a_flag_is_one_of_the_library() {
        check::<flags::Course, Course>();
        check::<flags::Head, Head>();
        check::<flags::Start, Start>();
        check::<flags::Loss, Loss>();
        check::<flags::Meaning, Meaning>();
        check::<flags::Net, Encoder>();
        check::<flags::CodeLoss, CodeLoss>();
    }
}
