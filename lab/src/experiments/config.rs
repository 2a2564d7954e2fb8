//! The experiment file: every policy under every scenario at every load, in virtual time or with real processes.

use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parm_durations::PositiveMillis;
use parm_settings::{BatchSize, Cost};
use parm_workload::service::Service;
use parm_workload::{Error as Described, Pattern, Scenario};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::experiments::{Contender, POLICIES};
use crate::world::rivals::Simulated;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Seed of arrivals, service times and faults; every policy faces the same. Default 1.
    pub seed: u64,
    /// Runs of each cell, each with its own seed. Default 1.
    pub repeats: NonZeroU32,
    /// Queries in a run. Default 1000000.
    pub queries: NonZeroU64,
    /// Queries at the start of a run that are not counted, while quantiles and budgets settle. Default 10000.
    pub warm_up: u64,
    /// Instances. Default 18.
    pub instances: NonZeroU32,
    /// The instances to which loads refer: those of the deployed model if redundancy has separate instances, as in the
    /// paper. Default 12.
    pub deployed: NonZeroU32,
    /// Jobs that an instance holds: one runs, the others wait there. Default 1.
    pub slots: NonZeroU16,
    /// Loads, as shares of the capacity of the `deployed` instances. Default 0.3, 0.5, 0.7, 0.85.
    pub loads: Vec<f64>,
    /// Loads as queries per second instead; not together with `loads`. Default: none.
    pub rates: Vec<f64>,
    /// Names of policies: predefined ones, rivals or those defined under `policy`. Default: all predefined policies.
    pub policies: Vec<String>,
    /// Queries per group: the coded policies run once for each. Default: none, which keeps the policies' own.
    pub k: Vec<NonZeroU8>,
    /// Parities per group: the coded policies run once for each. Default: none, which keeps the policies' own.
    pub r: Vec<NonZeroU8>,
    /// Most queries in a batch, or `auto`: every policy runs once for each. Default: none, which keeps the policies' own.
    pub batch: Vec<BatchSize>,
    /// Frontends of parm, or clients of a rival, in a simulation: every policy runs once for each. Default: none, which is one.
    pub frontends: Vec<NonZeroU32>,
    /// Names of scenarios: predefined ones or those defined under `scenario`. Default: clean, A, B, AB, hang.
    pub scenarios: Vec<String>,
    /// Arrivals of queries, unless the scenario defines them. Default: Poisson.
    pub arrivals: Pattern,
    /// Service times of instances. Default: 20 ms, plus or minus 5 %.
    pub service: Service,
    /// Time of the backup model, as a share of the deployed model's. Default 0.5.
    pub backup_share: f64,
    /// Time of a parity model for a group, as a share of the deployed model's. Default 1.
    pub parity_share: f64,
    /// Time of the stand-in as a share of the deployed model's: per row, or for jobs of 1, 2, 4 and 8 rows. Default 0.25.
    pub stand_in_cost: StandInCost,
    /// Milliseconds that a query may wait for its answer. Default 10000.
    #[serde(rename = "deadline_ms", with = "PositiveMillis")]
    pub deadline: Duration,
    /// Settings of a simulation; there are none for real processes.
    pub simulated: Simulated,
    /// Settings of real processes; a simulation ignores them.
    pub processes: Processes,
    /// Policies that this file defines.
    pub policy: BTreeMap<String, Contender>,
    /// Scenarios that this file defines.
    pub scenario: BTreeMap<String, Scenario>,
}

/// The time of a stand-in, as a share of the deployed model's time for a query.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StandInCost {
    /// Per row.
    Row(f64),
    /// For jobs of 1, 2, 4 and 8 rows.
    Rows([f64; 4]),
}

impl StandInCost {
    /// Returns the cost by rows.
    pub const fn cost(self) -> Cost {
        match self {
            Self::Row(row) => Cost::linear(row),
            Self::Rows(rows) => Cost { rows },
        }
    }
}

impl Config {
    /// Reads an experiment file (TOML). An error names the line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut config: Self = toml::from_str(text).map_err(|error| Error::ConfigFile(error.to_string()))?;
        if !config.rates.is_empty() {
            if toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("loads")) {
                return Err(Error::LoadsAndRates);
            }
            config.loads.clear();
        }
        Ok(config)
    }

    /// Reads the files that service times and scenarios name, relative to the folder of the experiment file.
    pub fn read_files(&mut self, folder: &Path) -> Result<(), Error> {
        self.service.time_ms.read_file(folder)?;
        Ok(self.scenario.values_mut().try_for_each(|scenario| scenario.read_files(folder))?)
    }

    /// Returns every load with its rate in queries per second. A closed load has neither: one stands for all.
    pub(crate) fn intensities(&self) -> Vec<(f64, f64)> {
        if self.simulated.closed.is_some() {
            return vec![(1.0, 1.0)];
        }
        let full = f64::from(self.deployed.get()) / self.service.mean_seconds();
        let loads = self.loads.iter().map(|load| (*load, load * full));
        loads.chain(self.rates.iter().map(|rate| (self.load_of(*rate, &[], BatchSize::ONE), *rate))).collect()
    }

    /// Returns the load that a rate is. Queries that arrive at one time, as the rows of a recorded one do, run as one batch.
    pub(crate) fn load_of(&self, rate: f64, trace: &[f64], batch: BatchSize) -> f64 {
        let full = f64::from(self.deployed.get()) / self.service.mean_seconds();
        let most = batch.fixed().map_or(usize::MAX, |most| most.get().into());
        let runs = trace.chunk_by(|one, next| one == next).flat_map(|rows| rows.chunks(most));
        let work: f64 = runs.map(|rows| self.service.rows(rows.len())).sum();
        let each = if trace.is_empty() { 1.0 } else { work / trace.len() as f64 };
        (1000.0 * rate * each / full).round() / 1000.0
    }
}

/// Returns the line of an experiment file that an error is about, counted from 1: the first one with the name in the error. The
/// checks see values and not their places, because flags may replace any of them; a value that a flag gave has no line.
pub fn line_of(text: &str, error: &Error) -> Option<usize> {
    let name: &str = match error {
        Error::UnknownPolicy { name, .. } | Error::Workload(Described::UnknownScenario { name, .. }) => name,
        Error::Scenario { scenario, .. } => scenario,
        Error::BadShare { name, .. } | Error::TooMany { name, .. } => name,
        Error::BadLoad { .. } => "loads",
        Error::LoadsAndRates => "rates",
        Error::Nothing { what: "policy" } => "policies",
        Error::Nothing { what: "scenario" } => "scenarios",
        Error::Unsimulated { policy, .. } | Error::OnlySimulated { policy } => policy,
        Error::Workload(Described::File { path, .. } | Described::Content { path, .. }) => path.to_str()?,
        Error::Workload(_) => "service",
        _ => return None,
    };
    text.lines().position(|line| line.contains(name)).map(|index| index + 1)
}

impl Default for Config {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            seed: 1,
            repeats: NonZeroU32::MIN,
            queries: const { NonZeroU64::new(1_000_000).unwrap() },
            warm_up: 10_000,
            instances: const { NonZeroU32::new(18).unwrap() },
            deployed: const { NonZeroU32::new(12).unwrap() },
            slots: NonZeroU16::MIN,
            loads: vec![0.3, 0.5, 0.7, 0.85],
            rates: Vec::new(),
            policies: POLICIES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            k: Vec::new(),
            r: Vec::new(),
            batch: Vec::new(),
            frontends: Vec::new(),
            scenarios: names(&["clean", "A", "B", "AB", "hang"]),
            arrivals: Pattern::default(),
            service: Service::default(),
            backup_share: 0.5,
            parity_share: 1.0,
            stand_in_cost: StandInCost::Row(0.25),
            deadline: Duration::from_secs(10),
            simulated: Simulated::default(),
            processes: Processes::default(),
            policy: BTreeMap::new(),
            scenario: BTreeMap::new(),
        }
    }
}

/// The processes of an experiment: workers on this machine, and a frontend for every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processes {
    /// Folder of the workers' models, and of their bundles. Default: none; workers emulate a linear model with the service
    /// time of `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<PathBuf>,
    /// Engine that runs them. Default `tract`.
    pub engine: String,
    /// The model that receives the queries. Default `emulated`.
    pub model: String,
}

impl Default for Processes {
    fn default() -> Self {
        Self { models: None, engine: "tract".into(), model: "emulated".into() }
    }
}

impl Processes {
    /// Whether workers emulate the model.
    pub(crate) fn emulates(&self) -> bool {
        self.models.is_none()
    }

    /// Returns the name of the emulated model's stand-in.
    pub(crate) fn stand_in(&self) -> String {
        format!("{}-stand-in", self.model)
    }
}

#[cfg(test)]
mod tests {
    use parm_workload::distribution::Distribution;
    use parm_workload::{By, Fault, Targets, When};

    use super::*;

    #[test]
    fn experiment_file_can_set_every_field() {
        let config = Config::parse(
            r#"
            loads = [0.6]
            policies = ["equal", "eager"]
            scenarios = ["rack"]
            service = { time_ms = { kind = "lognormal", median = 5.0, sigma = 0.3 } }

            [policy.eager]
            instances = 6
            dispatch = { policy = "hedge", hedge = { min_delay_us = 500 } }

            [[scenario.rack.faults]]
            kind = "slow"
            factor = 3.0
            when = { kind = "episodes", share = 0.05, length_ms = 1000 }
            on = { together = 0.5 }

            [[scenario.rack.faults]]
            kind = "straggle"
            factor = { kind = "pareto", min = 1.0, shape = 3.0 }
            "#,
        )
        .unwrap();
        assert_eq!(config.policy["eager"].dispatch.hedge.min_delay, Duration::from_micros(500));
        assert_eq!(config.policy["eager"].instances, NonZeroU32::new(6));
        let when = When::Episodes { share: 0.05, length: Duration::from_secs(1) };
        let factor = Distribution::Pareto { min: 1.0, shape: 3.0 };
        assert_eq!(
            config.scenario["rack"].faults.0,
            [
                Fault::Slow { factor: 3.0, when, on: Targets::Together(0.5) },
                Fault::Straggle { share: 1.0, factor, by: By::Run, on: Targets::Each },
            ]
        );
        assert_eq!(config.queries.get(), 1_000_000);
    }

    #[test]
    fn invalid_experiment_file_error_names_the_line() {
        let error = Config::parse("seed = 1\nqueris = 5\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("queris"), "{error}");
        for (text, example) in [
            ("arrivals = \"poisson\"", "{ kind = \"poisson\" }"),
            ("service = { time_ms = 5.0 }", "{ kind = \"constant\", value = 5.0 }"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("expected a table such as {example}")), "{error}");
        }
        assert!(Config::parse("instances = 0").is_err());
        let both = Config::parse("loads = [0.5]\nrates = [100.0]").unwrap_err().to_string();
        assert!(both.contains("keep one"), "{both}");
    }

    #[test]
    fn line_is_the_first_one_with_the_name_in_the_error() {
        for (text, expected) in [
            ("seed = 1\npolicies = [\n  \"equal\",\n  \"hope\",\n]", Some(4)),
            ("scenarios = [\"A\",\n\"mayhem\"]", Some(2)),
            ("\n\nbackup_share = 200.0", Some(3)),
            ("policies = [\"equal\"]\nscenarios = []", Some(2)),
            ("seed = 1\nservice = { time_ms = { kind = \"constant\", value = -1.0 } }", Some(2)),
        ] {
            let error = Config::parse(text).and_then(crate::experiments::Experiment::new).err().unwrap();
            assert_eq!(line_of(text, &error), expected, "{text}");
        }
        let hope = Config { policies: vec!["hope".into()], ..Config::default() };
        let error = crate::experiments::Experiment::new(hope).err().unwrap();
        assert_eq!(line_of("seed = 1", &error), None, "a flag named it");
    }

    #[test]
    fn rates_are_converted_to_loads() {
        let config =
            Config::parse("rates = [300.0]\nservice = { time_ms = { kind = \"constant\", value = 20.0 } }");
        assert_eq!(config.unwrap().intensities(), [(0.5, 300.0)]);
    }
}
