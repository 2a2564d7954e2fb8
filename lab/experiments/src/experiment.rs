//! An experiment: every policy through every scenario at every load, on the same arrivals and faults.
//!
//! Cells are simulated here or run by real processes in `laboratory`. Both give a tally for each run, and the same report
//! is made from the tallies.

use std::time::Duration;

use parm_loadgen::recorder::Sample;
use parm_simulator::{Answered, Progress, Tally, Witness, parallel};
use parm_workload::service::Service;

use crate::results::{RawLine, RunName};
use crate::verdict::{Tails, Verdict};
use crate::{Cell, Config, Error, Folder, Report, Row};

/// An experiment that is ready to run.
#[derive(Clone, Debug)]
pub struct Experiment {
    config: Config,
    cells: Vec<Cell>,
}

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

    /// Simulates everything on this many threads; the result does not depend on their number.
    pub fn run(&self, threads: usize, progress: &dyn Progress) -> Result<Report, Error> {
        self.run_keeping(threads, progress, None)
    }

    /// The same, with a file for the queries of each run in a folder of results, if there is one.
    pub fn run_keeping(
        &self,
        threads: usize,
        progress: &dyn Progress,
        folder: Option<&Folder>,
    ) -> Result<Report, Error> {
        let rows = parallel(self.cells.len(), threads, |index| {
            let cell = &self.cells[index];
            let tallies: Result<Vec<_>, _> =
                (0..cell.runs.len()).map(|repeat| simulated(cell, repeat, progress, folder)).collect();
            tallies.map(|tallies| self.done(cell, &tallies))
        })?;
        Ok(self.compared(rows))
    }

    /// Returns the report of the finished runs, by cell. Cells without one are left out.
    pub fn report(&self, tallies: &[Vec<Tally>]) -> Report {
        let done = self.cells.iter().zip(tallies).filter(|(_, tallies)| !tallies.is_empty());
        self.compared(done.map(|(cell, tallies)| self.done(cell, tallies)).collect())
    }

    fn done(&self, cell: &Cell, tallies: &[Tally]) -> Done {
        let tails = Tails::of(tallies, self.config.seed);
        let row = Row {
            case: cell.case.clone(),
            verdict: Verdict::of(tallies, &tails),
            spectrum: tails.spectrum.clone(),
        };
        Done { row, tails }
    }

    /// Compares the cells with the baseline.
    fn compared(&self, done: Vec<Done>) -> Report {
        let ratio = |of: &Done| {
            let is_baseline = |other: &&Done| {
                other.row.case.policy == BASELINE && other.row.case.faces_the_same(&of.row.case)
            };
            done.iter().find(is_baseline).and_then(|baseline| of.tails.ratio(&baseline.tails))
        };
        let ratios: Vec<_> = done.iter().map(ratio).collect();
        let rows = done.into_iter().zip(ratios).map(|(done, ratio)| {
            let mut row = done.row;
            row.verdict.gap_ratio = ratio;
            row
        });
        let (seed, repeats) = (self.config.seed, self.config.repeats.get());
        // A recording may be shorter than the configured run.
        let queries = self.cells.iter().flat_map(|cell| &cell.runs).map(|run| run.queries).max().unwrap_or(0);
        Report { seed, repeats, queries, rows: rows.collect() }
    }
}

/// Simulates a repeat of a cell.
fn simulated(
    cell: &Cell,
    repeat: usize,
    progress: &dyn Progress,
    folder: Option<&Folder>,
) -> Result<Tally, Error> {
    let run = &cell.runs[repeat];
    let Some(folder) = folder else { return Ok(run.simulate(progress)?) };
    let mut queries = Queries::default();
    let tally = run.watched(progress, &mut queries)?;
    queries.0.sort_unstable_by_key(|line| line.number);
    let raw = folder.keep_raw(cell, repeat, queries.0)?;
    folder.note_simulated(&RunName::of(cell, repeat), &raw)?;
    Ok(tally)
}

/// Keeps every query of a simulated run.
#[derive(Default)]
struct Queries(Vec<RawLine>);

impl Queries {
    fn keep(&mut self, answered: Answered, warm_up: bool) {
        let Answered { number, arrived, latency, outcome, wrong, .. } = answered;
        let right = (outcome.is_answer() && !outcome.is_approximate()).then_some(!wrong);
        let (intended, latency) = (Duration::from_nanos(arrived.as_nanos()), Duration::from_nanos(latency));
        let sample = Sample { intended, latency, lag: Duration::ZERO, outcome };
        self.0.push(RawLine { number, warm_up, sample, right });
    }
}

impl Witness for Queries {
    fn answered(&mut self, answered: Answered) {
        self.keep(answered, false);
    }

    fn warmed_up(&mut self, answered: Answered) {
        self.keep(answered, true);
    }
}

/// The result of a cell.
#[derive(Debug)]
struct Done {
    row: Row,
    tails: Tails,
}
