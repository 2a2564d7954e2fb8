//! `parm simulate`: runs policies under load and faults, in virtual time.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use anyhow::Context;
use parm_lab::experiments::{Config, Experiment, POLICIES, StandInCost, line_of};
use parm_lab::world::rivals::RIVALS;
use parm_workload::{PROFILES, SCENARIOS, Scenario};

use crate::cli::Simulate;
use crate::experiment::Cases;
use crate::progress::Bar;
use crate::{Failure, printer, tune};

/// Runs the command. An invalid file or name ends with status 64.
pub fn main(flags: &Simulate) -> Result<(), Failure> {
    if flags.list {
        return list().map_err(Failure::Run);
    }
    let (config, text) = config(flags).map_err(Failure::Configuration)?;
    let experiment = Experiment::new(config).map_err(|error| match &flags.experiment {
        Some(path) => placed(error, path, &text),
        None => error.into(),
    });
    let experiment = experiment.map_err(Failure::Configuration)?;
    let threads = flags.threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let bar = Bar::new(experiment.queries(), "queries");
    let report = experiment.run(threads, &bar, None).map_err(|error| Failure::Run(error.into()))?;
    drop(bar);
    printer::show(&report, flags.output).map_err(Failure::Run)
}

/// Reads an experiment file and the files that it names. Returns its text as well.
pub fn read(path: &Path) -> anyhow::Result<(Config, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = Config::parse(&text).map_err(|error| placed(error, path, &text))?;
    // The files that it names are relative to its folder.
    let folder = path.parent().unwrap_or(Path::new(""));
    config.read_files(folder).map_err(|error| placed(error, path, &text))?;
    Ok((config, text))
}

/// Adds the file to an error of an experiment, and the line that it is about.
pub fn placed(error: parm_lab::Error, path: &Path, text: &str) -> anyhow::Error {
    let shown = path.display();
    let place =
        line_of(text, &error).map_or_else(|| shown.to_string(), |line| format!("{shown}, line {line}"));
    anyhow::Error::from(error).context(place)
}

/// Reads the experiment file, with the changes of the flags. Returns its text as well.
fn config(flags: &Simulate) -> anyhow::Result<(Config, String)> {
    let (mut config, text) = match &flags.experiment {
        Some(path) => read(path)?,
        None => Default::default(),
    };
    if let Some(path) = &flags.recording {
        recorded(&mut config, path, flags.model.as_deref())?;
    }
    config.instances = flags.instances.unwrap_or(config.instances);
    config.deployed = flags.deployed.unwrap_or(config.deployed);
    apply(&flags.cases, &mut config)?;
    Ok((config, text))
}

/// Applies the flags about policies, scenarios and loads.
pub fn apply(flags: &Cases, config: &mut Config) -> anyhow::Result<()> {
    replace(&mut config.policies, &flags.policy);
    replace(&mut config.scenarios, &scenarios(&flags.scenario, &flags.profile)?);
    if !flags.load.is_empty() {
        config.rates.clear();
    }
    replace(&mut config.loads, &flags.load);
    if let Some(queries) = flags.queries {
        config.queries = queries;
        // Most queries of a short run are counted.
        config.warm_up = config.warm_up.min(queries.get() / 10);
    }
    config.repeats = flags.repeats.unwrap_or(config.repeats);
    config.seed = flags.seed.unwrap_or(config.seed);
    Ok(())
}

/// Adds the scenario `recorded` with the arrivals, service times and faults of a recording, at its rate. A stand-in has the
/// recorded cost.
fn recorded(config: &mut Config, path: &Path, model: Option<&str>) -> anyhow::Result<()> {
    let (recording, profile) = tune::recorded(path, model)?;
    if let Some(instances) = std::num::NonZeroU32::new(profile.instances) {
        config.instances = instances;
        config.deployed = instances;
    }
    config.loads = Vec::new();
    config.rates = vec![recording.trace().rate()];
    config.service = profile.service.clone();
    config.stand_in_cost = profile.stand_in.map_or(config.stand_in_cost, |cost| StandInCost::Rows(cost.rows));
    let scenario = Scenario { faults: profile.faults(), trace: recording.arrivals, ..Scenario::default() };
    config.scenario.insert("recorded".to_owned(), scenario);
    config.scenarios = vec!["recorded".to_owned()];
    Ok(())
}

/// Returns the scenarios and the profiles of the flags: profiles are scenarios too.
fn scenarios(scenarios: &[String], profiles: &[String]) -> anyhow::Result<Vec<String>> {
    let built_in = |part: &str| PROFILES.iter().any(|(name, _)| *name == part.trim());
    if let Some(unknown) = profiles.iter().find(|name| !name.split('+').any(built_in)) {
        let known = PROFILES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        anyhow::bail!("unknown profile '{unknown}': use one of {known}, or --scenario");
    }
    Ok([scenarios, profiles].concat())
}

fn replace<T: Clone>(values: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *values = given.to_vec();
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = printer::stdout();
    let rivals: Vec<_> = RIVALS.iter().map(|(name, meaning, _)| (*name, *meaning)).collect();
    for (what, all) in
        [("policies", POLICIES), ("rivals", &rivals), ("scenarios", SCENARIOS), ("profiles", PROFILES)]
    {
        writeln!(out, "{what}:")?;
        for (name, meaning) in all {
            writeln!(out, "  {name:<22} {meaning}")?;
        }
    }
    Ok(())
}
