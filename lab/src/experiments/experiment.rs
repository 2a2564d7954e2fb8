//! An experiment: every policy through every scenario at every load, on the same arrivals and faults.
//!
//! Cells are simulated here or run by real processes in `laboratory`. Both give a tally for each run, and the same report
//! is made from the tallies.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use parm_grids::{Cell as GridCell, Product, Record, Share};
use parm_loadgen::recorder::Sample;
use parm_workload::service::Service;

use crate::Error;
use crate::experiments::results::{RawLine, RunName};
use crate::experiments::verdict::{Tails, Verdict};
use crate::experiments::{Cell, Config, Folder, Processes, Report, Row};
use crate::simulator::{Answered, Progress, Tally, parallel};

/// An experiment that is ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    config: Config,
    cells: Vec<Cell>,
}

/// The kind of grid in result files.
pub const GRID: &str = "experiment";

/// The policy with which the others are compared.
const BASELINE: &str = "equal";

impl Experiment {
    /// Checks an experiment and creates its cells.
    pub fn new(config: Config) -> Result<Self, Error> {
        let cells = config.cells()?;
        Ok(Self { config, cells })
    }

    /// Returns the experiment as processes run it. A simulation needs a service time, but the service time of a real model
    /// is unknown unless the file states it, and then so is the load.
    pub(crate) fn with_processes(&self) -> Self {
        let mut own = self.clone();
        if !own.config.processes.emulates() && own.config.service == Service::default() {
            own.cells.iter_mut().for_each(|cell| cell.case.load = None);
        }
        own
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the cells; those that are compared with each other are neighbours.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the number of queries of all runs.
    pub fn queries(&self) -> u64 {
        self.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.queries).sum()
    }

    /// Simulates everything on this many threads; the result does not depend on their number. A folder of results gets a file for
    /// the queries of each run.
    pub fn run(
        &self,
        threads: usize,
        progress: &dyn Progress,
        folder: Option<&Folder>,
    ) -> Result<Report, Error> {
        let rows = parallel(self.cells.len(), threads, |index| {
            let cell = &self.cells[index];
            let tallies: Result<Vec<_>, _> =
                (0..cell.runs.len()).map(|repeat| simulated(cell, repeat, progress, folder)).collect();
            tallies.map(|tallies| self.concluded(cell, &tallies))
        })?;
        Ok(self.compared(rows))
    }

    /// Returns the report of the finished runs, by cell. Cells without one are left out.
    pub fn report(&self, tallies: &[Vec<Tally>]) -> Report {
        let done = self.cells.iter().zip(tallies).filter(|(_, tallies)| !tallies.is_empty());
        self.compared(done.map(|(cell, tallies)| self.concluded(cell, tallies)).collect())
    }

    fn concluded(&self, cell: &Cell, tallies: &[Tally]) -> (Row, Tails) {
        let tails = Tails::of(tallies, self.config.seed);
        let (verdict, spectrum) = (Verdict::of(tallies, &tails), tails.spectrum.clone());
        (Row { case: cell.case.clone(), verdict, spectrum }, tails)
    }

    /// Compares the cells with the baseline.
    fn compared(&self, done: Vec<(Row, Tails)>) -> Report {
        let ratio = |(row, tails): &(Row, Tails)| {
            let is_baseline = |(other, _): &&(Row, Tails)| {
                other.case.policy == BASELINE && other.case.faces_the_same(&row.case)
            };
            done.iter().find(is_baseline).and_then(|(_, baseline)| tails.ratio(baseline))
        };
        let ratios: Vec<_> = done.iter().map(ratio).collect();
        let rows = done.into_iter().zip(ratios).map(|((mut row, _), ratio)| {
            row.verdict.gap_ratio = ratio;
            row
        });
        let (seed, repeats) = (self.config.seed, self.config.repeats.get());
        // A recording may be shorter than the configured run.
        let queries = self.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.queries).max().unwrap_or(0);
        Report { seed, repeats, queries, rows: rows.collect() }
    }
}

/// A simulated experiment as a grid: each run is a cell that any machine can run, and the report is made from the files. A result
/// file contains the run's tally, so the joined report equals that of one process. Experiments with real processes are not a
/// grid, because policies are compared on one machine in turns.
impl Experiment {
    /// Returns the cells of the grid: every run, in order.
    pub fn grid(&self) -> Result<Vec<GridCell>, Error> {
        Ok(self.runs()?.into_iter().map(|(of_grid, ..)| of_grid).collect())
    }

    /// Runs the cells of a share without a result on this many threads.
    pub fn run_share(
        &self,
        folder: &parm_grids::Folder,
        share: Share,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let runs = share.of(&self.runs()?);
        parallel(runs.len(), threads, |index| {
            let (of_grid, cell, repeat) = &runs[index];
            if folder.has_result(of_grid)? {
                return Ok(());
            }
            let tally = cell.runs[*repeat].simulate(progress)?;
            let result = serde_json::to_string(&tally).map_err(unwritable)?;
            Ok(folder.keep(of_grid, Product { result, timings: "{}".into() })?)
        })
        .map(drop)
    }

    /// Returns the report of joined results. Cells without the results of all repeats are left out.
    pub fn joined(&self, records: &BTreeMap<String, Record>) -> Result<Report, Error> {
        let runs = self.runs()?;
        let mut keys = runs.iter().map(|(of_grid, ..)| &of_grid.key);
        let tally = |record: &Record| serde_json::from_str(record.result.get()).map_err(|_| Error::KeptTally);
        let mut tallies = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            let found: Vec<_> = keys.by_ref().take(cell.runs.len()).map(|key| records.get(key)).collect();
            let found: Option<Vec<&Record>> = found.into_iter().collect();
            tallies.push(found.unwrap_or_default().into_iter().map(tally).collect::<Result<_, _>>()?);
        }
        Ok(self.report(&tallies))
    }

    fn runs(&self) -> Result<Vec<(GridCell, &Cell, usize)>, Error> {
        let runs = self.cells.iter().flat_map(|cell| (0..cell.runs.len()).map(move |repeat| (cell, repeat)));
        runs.map(|(cell, repeat)| {
            let settings = settings(&self.config, cell, repeat)?;
            let (case, seed) = (&cell.case, cell.runs[repeat].seed);
            let name = format!("{} at {}, {}, seed {seed}", case.scenario, case.intensity(), case.name());
            let inputs = BTreeMap::from([("settings".to_owned(), parm_grids::digest(&settings))]);
            Ok((GridCell { key: parm_grids::key(&settings), name, inputs }, cell, repeat))
        })
        .collect()
    }
}

/// Simulates a repeat of a cell, and keeps its queries if there is a folder.
fn simulated(
    cell: &Cell,
    repeat: usize,
    progress: &dyn Progress,
    folder: Option<&Folder>,
) -> Result<Tally, Error> {
    let run = &cell.runs[repeat];
    let Some(folder) = folder else { return run.simulate(progress) };
    let mut queries = Vec::new();
    let tally = run.watched(progress, &mut |answered| {
        let Answered { number, counted, arrived, latency, outcome, wrong, .. } = answered;
        let right = (outcome.is_answer() && !outcome.is_approximate()).then_some(!wrong);
        let (intended, latency) = (Duration::from_nanos(arrived.as_nanos()), Duration::from_nanos(latency));
        let sample = Sample { intended, latency, lag: Duration::ZERO, outcome };
        queries.push(RawLine { number, warm_up: !counted, sample, right });
    })?;
    queries.sort_unstable_by_key(|line| line.number);
    let raw = folder.keep_raw(cell, repeat, queries)?;
    folder.note_simulated(&RunName::of(cell, repeat), &raw)?;
    Ok(tally)
}

/// Returns all that a run depends on, with the content of files, and without the other runs of its experiment.
fn settings(config: &Config, cell: &Cell, repeat: usize) -> Result<Vec<u8>, Error> {
    let name = RunName { repeat: 0, ..RunName::of(cell, repeat) };
    let none = Config {
        seed: 0,
        repeats: NonZeroU32::MIN,
        loads: Vec::new(),
        rates: Vec::new(),
        policies: Vec::new(),
        k: Vec::new(),
        r: Vec::new(),
        batch: Vec::new(),
        frontends: Vec::new(),
        scenarios: Vec::new(),
        processes: Processes::default(),
        ..config.clone()
    };
    let policy =
        none.policy.into_iter().filter(|(own, _)| cell.case.policy.starts_with(own.as_str())).collect();
    let scenario =
        none.scenario.into_iter().filter(|(own, _)| cell.case.scenario.split('+').any(|part| part == own));
    let common = Config { policy, scenario: scenario.collect(), ..none };
    serde_json::to_vec(&(name, common)).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::ConfigFile(error.to_string())
}
