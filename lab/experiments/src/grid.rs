//! A simulated experiment as a grid: each run is a cell that any machine can run, and the report is made from the files.
//!
//! A result file contains the run's tally, so the joined report equals that of one process. Experiments with real
//! processes are not a grid, because policies are compared on one machine in turns.

use std::collections::BTreeMap;

use parm_grids::{Cell as GridCell, Folder, Product, Record, Share};
use parm_simulator::{Progress, Tally, parallel};

use crate::results::RunName;
use crate::{Case, Cell, Config, Error, Experiment, Processes, Report};

/// The kind of grid in result files.
pub const GRID: &str = "experiment";

impl Experiment {
    /// Returns the cells of the grid: every run, in order.
    pub fn grid(&self) -> Result<Vec<GridCell>, Error> {
        self.runs().map(|(cell, repeat)| self.grid_cell(cell, repeat)).collect()
    }

    /// Runs the cells of a share without a result on this many threads.
    pub fn run_share(
        &self,
        folder: &Folder,
        share: Share,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let cells = share.of(&self.grid()?);
        let by_key = self.by_key()?;
        parallel(cells.len(), threads, |index| {
            let of_grid = &cells[index];
            if folder.has_result(of_grid)? {
                return Ok(());
            }
            let (cell, repeat) = by_key[&of_grid.key];
            let tally = cell.runs[repeat].simulate(progress)?;
            let result = serde_json::to_string(&tally).map_err(unwritable)?;
            folder.keep(of_grid, Product { result, timings: "{}".into() })?;
            Ok(())
        })
        .map(drop)
    }

    /// Returns the report of joined results. Cells without the results of all repeats are left out.
    pub fn joined(&self, records: &BTreeMap<String, Record>) -> Result<Report, Error> {
        let mut tallies = Vec::with_capacity(self.cells().len());
        for cell in self.cells() {
            let keys = (0..cell.runs.len()).map(|repeat| Ok(self.grid_cell(cell, repeat)?.key));
            let keys: Vec<String> = keys.collect::<Result<_, Error>>()?;
            let found: Option<Vec<&Record>> = keys.iter().map(|key| records.get(key)).collect();
            tallies.push(found.unwrap_or_default().into_iter().map(tally).collect::<Result<_, _>>()?);
        }
        Ok(self.report(&tallies))
    }

    fn runs(&self) -> impl Iterator<Item = (&Cell, usize)> {
        self.cells().iter().flat_map(|cell| (0..cell.runs.len()).map(move |repeat| (cell, repeat)))
    }

    fn by_key(&self) -> Result<BTreeMap<String, (&Cell, usize)>, Error> {
        self.runs().map(|(cell, repeat)| Ok((self.grid_cell(cell, repeat)?.key, (cell, repeat)))).collect()
    }

    fn grid_cell(&self, cell: &Cell, repeat: usize) -> Result<GridCell, Error> {
        let settings = settings(self.config(), cell, repeat)?;
        let run = &cell.runs[repeat];
        let Case { scenario, .. } = &cell.case;
        Ok(GridCell {
            key: parm_grids::key(&settings),
            name: format!("{scenario} at {}, {}, seed {}", cell.case.intensity(), cell.case.name(), run.seed),
            inputs: BTreeMap::from([("settings".to_owned(), parm_grids::digest(&settings))]),
        })
    }
}

/// Returns all that a run depends on, with the content of files, and without the other runs of its experiment.
fn settings(config: &Config, cell: &Cell, repeat: usize) -> Result<Vec<u8>, Error> {
    let name = RunName { repeat: 0, ..RunName::of(cell, repeat) };
    let none = Config {
        seed: 0,
        repeats: std::num::NonZeroU32::MIN,
        loads: Vec::new(),
        rates: Vec::new(),
        policies: Vec::new(),
        k: Vec::new(),
        r: Vec::new(),
        batch: Vec::new(),
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

fn tally(record: &Record) -> Result<Tally, Error> {
    serde_json::from_str(record.result.get()).map_err(|_| Error::KeptTally)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::ConfigFile(error.to_string())
}
