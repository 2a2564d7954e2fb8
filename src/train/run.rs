//! Reads the recipe of a run, and makes its surroundings.

use anyhow::{Context, anyhow};
use parm_training::fit::{Files, Surroundings};
use parm_training::{Device, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Value;

use super::progress::{EpochBar, stop_on_signals};
use crate::cli::train::Run;
use crate::settings::{Layers, written};

/// The source of values of flags.
const FLAG: &str = "on the command line";

/// Reads the recipe of a run: these defaults, the file that the flags name, `--set`, and last the flags. `own` are a command's
/// own flags, by the field that each sets.
pub fn recipe<T: Serialize + DeserializeOwned>(
    defaults: &T,
    flags: &Run,
    own: &[(&str, Option<Value>)],
) -> anyhow::Result<T> {
    let mut layers = Layers::new(defaults)?;
    if let Some(path) = &flags.recipe {
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(named)?;
        layers.merge(text.parse().with_context(named)?, &format!("from {}", named()));
    }
    for assignment in &flags.set {
        let (path, value) = assignment
            .split_once('=')
            .with_context(|| format!("--set {assignment}: write PATH=VALUE, such as run.batch=32"))?;
        layers.set(path.trim(), written(value), FLAG);
    }
    let number = |value: u64| i64::try_from(value).map(Value::Integer);
    let run = [
        ("run.epochs", flags.epochs.map(number).transpose()?),
        ("run.rate", flags.rate.map(|rate| Value::Float(rate.into()))),
        ("run.seed", flags.seed.map(number).transpose()?),
    ];
    for (path, value) in run.iter().chain(own) {
        if let Some(value) = value {
            layers.set(path, value.clone(), FLAG);
        }
    }
    layers.read().map_err(|misfit| {
        let field = misfit.path.join(".");
        let field = if field.is_empty() { field } else { format!("{field}: ") };
        anyhow!("{field}{}{}", misfit.problem, misfit.source)
    })
}

/// The value of a flag with a text.
pub fn text(flag: Option<&String>) -> Option<Value> {
    flag.cloned().map(Value::String)
}

/// The value of a flag with a count.
pub fn count(flag: Option<u32>) -> Option<Value> {
    flag.map(|count| Value::Integer(count.into()))
}

/// Returns the device that the flags name.
pub fn device(flags: &Run) -> anyhow::Result<Device> {
    Ok(flags.device.parse()?)
}

/// Trains on the threads that the flags name, with a bar and the files of the run `name`, until a signal requests the end.
/// The caller removes the checkpoint after it published the result. May be called once in a process.
pub fn observed<T>(
    flags: &Run,
    name: &str,
    train: impl FnOnce(Surroundings<'_>) -> Result<T, Error>,
) -> anyhow::Result<(T, Files)> {
    if let Some(threads) = flags.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get());
        pool.build_global().context("cannot start threads")?;
    }
    let (bar, stop) = (EpochBar::new(), stop_on_signals()?);
    let path = |end: &str| Some(flags.runs.join(format!("{name}.{end}")));
    let files = Files { checkpoint: path("checkpoint"), metrics: path("jsonl") };
    let trained = train(Surroundings { observer: &bar, stop: &stop, files: &files })?;
    Ok((trained, files))
}
