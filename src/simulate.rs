//! `parm simulate`: policies under load and faults, in virtual time.

use std::io::Write;
use std::num::NonZeroUsize;
use std::thread;

use anyhow::Context;
use parm_simulator::{Config, Experiment, POLICIES, SCENARIOS};

use crate::Failure;
use crate::bar::Bar;
use crate::cli::{Output, Simulate};

/// Runs the command. A file or a name that cannot be used ends with status 64.
pub fn main(flags: &Simulate) -> Result<(), Failure> {
    if flags.list {
        return list().map_err(Failure::Run);
    }
    let config = config(flags).map_err(Failure::Configuration)?;
    let experiment = Experiment::new(config).map_err(|error| Failure::Configuration(error.into()))?;
    let threads = flags.threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let bar = Bar::new(experiment.queries(), "queries");
    let report = experiment.run(threads, &bar).map_err(|error| Failure::Run(error.into()))?;
    bar.done();
    print(&report, flags.output).map_err(Failure::Run)
}

/// The experiment file, as the flags change it.
fn config(flags: &Simulate) -> anyhow::Result<Config> {
    let mut config = match &flags.experiment {
        Some(path) => {
            let named = || path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", named()))?;
            Config::parse(&text).with_context(named)?
        }
        None => Config::default(),
    };
    replace(&mut config.policies, &flags.policy);
    replace(&mut config.scenarios, &flags.scenario);
    replace(&mut config.loads, &flags.load);
    config.queries = flags.queries.unwrap_or(config.queries);
    config.repeats = flags.repeats.unwrap_or(config.repeats);
    config.instances = flags.instances.unwrap_or(config.instances);
    config.deployed = flags.deployed.unwrap_or(config.deployed);
    config.seed = flags.seed.unwrap_or(config.seed);
    Ok(config)
}

fn replace<T: Clone>(values: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *values = given.to_vec();
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (what, all) in [("policies", POLICIES), ("scenarios", SCENARIOS)] {
        writeln!(out, "{what}:")?;
        for (name, meaning) in all {
            writeln!(out, "  {name:<16} {meaning}")?;
        }
    }
    Ok(())
}

fn print(report: &parm_simulator::Report, output: Output) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(report)?)?,
        Output::Text => writeln!(out, "{report}")?,
    }
    Ok(())
}
