//! An experiment: every policy through every scenario at every load, on the same arrivals and faults.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::contender::Resources;
use crate::verdict::{Tails, Verdict};
use crate::{Config, Contender, Error, Report, Row, Run, Scenario, Shape, Tally};

/// Told how far the runs are, by several threads.
pub trait Progress: Sync {
    /// So many more queries have arrived.
    fn advanced(&self, queries: u64);
}

/// Progress that nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn advanced(&self, _queries: u64) {}
}

/// An experiment that is ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    config: Config,
    cells: Vec<Cell>,
}

/// One policy under one scenario at one load.
#[derive(Clone, Debug)]
struct Cell {
    scenario: String,
    load: f64,
    policy: String,
    /// One for each repeat.
    runs: Vec<Run>,
}

/// The policy that the others are compared with.
const BASELINE: &str = "equal";

impl Experiment {
    /// Checks an experiment and lays out its runs.
    pub fn new(config: Config) -> Result<Self, Error> {
        for (what, none) in [
            ("policy", config.policies.is_empty()),
            ("scenario", config.scenarios.is_empty()),
            ("load", config.loads.is_empty()),
        ] {
            if none {
                return Err(Error::Nothing { what });
            }
        }
        let mut cells = Vec::new();
        for scenario in &config.scenarios {
            for load in &config.loads {
                for policy in &config.policies {
                    let runs = config.runs(scenario, *load, policy)?;
                    cells.push(Cell {
                        scenario: scenario.clone(),
                        load: *load,
                        policy: policy.clone(),
                        runs,
                    });
                }
            }
        }
        Ok(Self { config, cells })
    }

    /// Queries of all runs.
    pub fn queries(&self) -> u64 {
        self.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.queries).sum()
    }

    /// Runs everything, on this many threads; the result does not depend on how many.
    pub fn run(&self, threads: usize, progress: &dyn Progress) -> Result<Report, Error> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.cells.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = self.cells.get(index) else { break };
                        let outcome = cell.simulate(self.config.seed, progress);
                        done.lock().unwrap_or_else(|broken| broken.into_inner()).insert(index, outcome);
                    }
                });
            }
        });
        let done = done.into_inner().unwrap_or_else(|broken| broken.into_inner());
        let done: Vec<Done> = done.into_values().collect::<Result<_, _>>()?;
        Ok(self.report(&done))
    }

    fn report(&self, done: &[Done]) -> Report {
        let baseline = |cell: &Cell| {
            let mut same = self.cells.iter().zip(done).filter(|(other, _)| {
                other.policy == BASELINE && other.scenario == cell.scenario && other.load == cell.load
            });
            same.next().map(|(_, done)| &done.tails)
        };
        let rows = self.cells.iter().zip(done).map(|(cell, done)| {
            let baseline = baseline(cell);
            let mut verdict = done.verdict.clone();
            verdict.gap_ratio = baseline.and_then(|baseline| done.tails.ratio(baseline));
            Row { scenario: cell.scenario.clone(), load: cell.load, policy: cell.policy.clone(), verdict }
        });
        let (seed, repeats) = (self.config.seed, self.config.repeats.get());
        Report { seed, repeats, queries: self.config.queries.get(), rows: rows.collect() }
    }
}

/// What is kept of a cell.
#[derive(Debug)]
struct Done {
    verdict: Verdict,
    tails: Tails,
}

impl Cell {
    fn simulate(&self, seed: u64, progress: &dyn Progress) -> Result<Done, Error> {
        let tallies: Vec<Tally> =
            self.runs.iter().map(|run| run.simulate(progress)).collect::<Result<_, _>>()?;
        let tails = Tails::of(&tallies, seed);
        Ok(Done { verdict: Verdict::of(&tallies, &tails), tails })
    }
}

impl Config {
    /// The repeats of one policy under one scenario at one load.
    fn runs(&self, scenario: &str, load: f64, policy: &str) -> Result<Vec<Run>, Error> {
        if !(load.is_finite() && load > 0.0) {
            return Err(Error::BadLoad { load });
        }
        self.service.check()?;
        if !(0.0..=100.0).contains(&self.backup_share) {
            return Err(Error::BadShare { share: self.backup_share });
        }
        let contender = self.contender(policy)?;
        let instances = contender.instances.unwrap_or(self.instances.get());
        let parity = contender.parity_only;
        if parity >= instances {
            return Err(Error::NoDeployedInstance { policy: policy.into(), instances, parity });
        }
        let scenario = self.scenario(scenario)?;
        scenario.faults.check(instances)?;
        let rate = load * f64::from(self.deployed.get()) / self.service.mean_seconds();
        let run = |repeat| Run {
            seed: self.seed.wrapping_add(u64::from(repeat)),
            queries: self.queries.get(),
            warm_up: self.warm_up,
            arrivals: scenario.arrivals.unwrap_or(self.arrivals).at(rate),
            faults: scenario.faults.clone(),
            service: self.service.clone(),
            backup_share: self.backup_share,
            shape: Shape { instances, parity_only: parity, slots: self.slots.get() },
            settings: contender.dispatch.clone(),
            deadline: Duration::from_millis(self.deadline_ms.get()),
            encode: Duration::from_micros(self.encode_us),
            decode: Duration::from_micros(self.decode_us),
        };
        Ok((0..self.repeats.get()).map(run).collect())
    }

    fn contender(&self, name: &str) -> Result<Contender, Error> {
        if let Some(own) = self.policy.get(name) {
            return Ok(own.clone());
        }
        let resources = Resources { instances: self.instances.get(), deployed: self.deployed.get() };
        let known = || crate::POLICIES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Contender::named(name, resources)
            .ok_or_else(|| Error::UnknownPolicy { name: name.into(), known: known() })
    }

    fn scenario(&self, name: &str) -> Result<Scenario, Error> {
        if let Some(own) = self.scenario.get(name) {
            return Ok(own.clone());
        }
        let known = || crate::SCENARIOS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Scenario::named(name).ok_or_else(|| Error::UnknownScenario { name: name.into(), known: known() })
    }
}
