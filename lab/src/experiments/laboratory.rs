//! An experiment with real processes: the order of its runs, and the recording of their results.
//!
//! Policies take turns: each repeat of a scenario and a load runs all policies one after the other, on the same arrivals
//! and faults, and begins with another policy each time. A machine that becomes slower during the experiment therefore
//! affects all of them alike.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parm_protocol::client::Client;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::experiments::processes::{Fleet, Order};
use crate::experiments::reference::Reference;
use crate::experiments::results::RunName;
use crate::experiments::run::run;
use crate::experiments::{Cell, Experiment, Folder, Mode, Results, RunRecord, Validity};
use crate::simulator::Tally;

/// The progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// Runs before this one.
    pub number: usize,
    /// Runs in all.
    pub of: usize,
    /// The cell that runs.
    pub cell: &'a Cell,
    /// The repeat, counted from 0.
    pub repeat: usize,
}

/// The resources of an experiment.
pub struct Laboratory<'a> {
    /// The `parm` binary.
    pub binary: PathBuf,
    /// The folder of results.
    pub folder: &'a Folder,
    /// The command that repeats it.
    pub command: String,
    /// Ends it early.
    pub stop: CancellationToken,
    /// Drives the clients.
    pub runtime: &'a Handle,
    /// Connects to workers and frontends.
    pub connect: Connect,
}

/// Is told of a run that begins, and of its validity when it has ended.
pub type Observer = fn(&Position<'_>, Option<&Validity>);

/// Connects to the server at a URL, within a runtime.
pub type Connect = fn(&str) -> Result<Arc<dyn Client>, parm_protocol::Error>;

impl Laboratory<'_> {
    /// Runs an experiment. If it ends early, the finished runs are in the folder and in the results.
    ///
    /// Call it from a thread that lives as long as the experiment: processes are tied to it.
    pub fn run(&self, experiment: &Experiment, observer: Observer) -> Result<Results, Error> {
        let began = Instant::now();
        let experiment = &experiment.with_processes();
        // Before anything is written.
        if let Some(cell) = experiment.cells().iter().find(|cell| cell.runs[0].has_clients()) {
            return Err(Error::OnlySimulated { policy: cell.case.policy.clone() });
        }
        self.folder.keep_config(experiment.config())?;
        let mut tallies = vec![Vec::new(); experiment.cells().len()];
        let mut runs = Vec::new();
        let outcome = self.all(experiment, observer, began, &mut |index, tally, record| {
            tallies[index].push(tally);
            runs.push(record);
        });
        let results = Results {
            mode: Mode::Processes,
            command: self.command.clone(),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
                - began.elapsed().as_secs(),
            machine: machine(),
            ended_early: outcome.err().map(|error| error.to_string()),
            report: experiment.report(&tallies),
            runs,
        };
        self.folder.keep(&results)?;
        Ok(results)
    }

    fn all(
        &self,
        experiment: &Experiment,
        observer: Observer,
        began: Instant,
        done: &mut dyn FnMut(usize, Tally, RunRecord),
    ) -> Result<(), Error> {
        let config = experiment.config();
        let processes = &config.processes;
        let most = experiment.cells().iter().map(|cell| cell.runs[0].instances).max().unwrap_or(0);
        let mut fleet = Fleet::start(config, most, &self.binary, self.folder.path())?;
        let distinct = Reference::distinct(experiment.cells().iter().map(|cell| &cell.runs[0].faults));
        let inputs = (config.seed, distinct);
        let url = fleet.urls(1).remove(0);
        let _inside = self.runtime.enter();
        let client = (self.connect)(&url)
            .map_err(|error| Error::Reference { url: url.clone(), reason: error.to_string() })?;
        let reference = Reference::ask(&*client, &url, &processes.model, inputs, self.runtime)?;
        let reference = Arc::new(reference);
        let order = turns(experiment);
        for (number, (index, repeat)) in order.iter().copied().enumerate() {
            if self.stop.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let cell = &experiment.cells()[index];
            let position = Position { number, of: order.len(), cell, repeat };
            observer(&position, None);
            let (what, began_s) = (&cell.runs[repeat], began.elapsed().as_secs_f64());
            let outcome = {
                let workers = &fleet.urls(what.instances);
                let (binary, folder) = (&self.binary, self.folder.path());
                let name = format!("frontend-{index}");
                let order = Order { binary, folder, name: &name, processes, workers };
                run(self, what, order, &mut fleet, &reference)?
            };
            let raw = self.folder.keep_raw(cell, repeat, outcome.queries)?;
            observer(&position, Some(&outcome.validity));
            let record =
                RunRecord { name: RunName::of(cell, repeat), began_s, validity: outcome.validity, raw };
            self.folder.note(&record)?;
            done(index, outcome.tally, record);
        }
        Ok(())
    }
}

/// Returns the runs in order, as cell and repeat.
fn turns(experiment: &Experiment) -> Vec<(usize, usize)> {
    let cells = experiment.cells();
    let all: Vec<usize> = (0..cells.len()).collect();
    let groups: Vec<&[usize]> =
        all.chunk_by(|one, next| cells[*one].case.faces_the_same(&cells[*next].case)).collect();
    let repeats = cells.first().map_or(0, |cell| cell.runs.len());
    let of = |repeat: usize| {
        groups.iter().flat_map(move |group| {
            let turn = move |i: usize| (group[(i + repeat) % group.len()], repeat);
            (0..group.len()).map(turn)
        })
    };
    (0..repeats).flat_map(of).collect()
}

/// Describes the machine and the program for results.
pub fn machine() -> String {
    let name = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (system, release) = (name.sysname().to_string_lossy(), name.release().to_string_lossy());
    format!(
        "{cores} cores, {system} {release} {}, parm {}",
        name.machine().to_string_lossy(),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use crate::experiments::Config;

    use super::*;

    fn experiment(text: &str) -> Experiment {
        Experiment::new(Config::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn policies_take_turns_and_rotate_in_every_repeat() {
        let text = "policies = [\"equal\", \"hedge\"]\nscenarios = [\"A\"]\nloads = [0.3, 0.5]\nrepeats = 2";
        let turns = turns(&experiment(text));
        let expected = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (3, 1), (2, 1)];
        assert_eq!(turns, expected, "cells 0 and 1 are at one load, 2 and 3 at the other");
    }

    #[test]
    fn load_of_a_real_model_is_unknown_without_its_service() {
        let loads = |text: &str| {
            let text = format!("policies = [\"equal\"]\nscenarios = [\"A\"]\nrates = [40.0, 60.0]\n{text}");
            let cells = experiment(&text).with_processes();
            cells.cells().iter().map(|cell| cell.case.intensity()).collect::<Vec<_>>()
        };
        let models = "[processes]\nmodels = \"zoo\"";
        assert_eq!(loads(models), ["40/s", "60/s"]);
        let service = "service = { time_ms = { kind = \"constant\", value = 6.0 } }";
        assert_eq!(loads(&format!("{service}\n{models}")), ["0.02", "0.03"]);
        assert_eq!(loads(""), ["0.067", "0.1"], "an emulated model takes the default time");
    }
}
