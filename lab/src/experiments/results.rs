//! The folder of an experiment's results, which is readable even if the experiment ends early.
//!
//! `experiment.toml` is the experiment as it ran, `raw/` has a line for every query, `runs.jsonl` a line for every
//! finished run (of a simulation, both on request), `results.json` the conclusions, and `report.txt` shows them.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use parm_loadgen::recorder::Sample;
use serde::Serialize;

use crate::Error;
use crate::experiments::{Case, Cell, Config, Report, Validity};

/// The header of raw files; `docs/experiments.md` describes the columns.
pub const RAW_COLUMNS: &str = "number,warm_up,intended_us,latency_us,lag_us,outcome,right";

/// How an experiment ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// With real processes.
    Processes,
    /// In virtual time.
    Simulation,
}

/// All results of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// How it ran.
    pub mode: Mode,
    /// The command that repeats it.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// The machine and the program.
    pub machine: String,
    /// Why it ended early, if it did.
    pub ended_early: Option<String>,
    /// The conclusions about every policy.
    pub report: Report,
    /// Every run with real processes, in order.
    pub runs: Vec<RunRecord>,
}

/// Where the results are from, whether their runs are valid, and the table of policies.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.mode {
            Mode::Processes => "with real processes",
            Mode::Simulation => "in virtual time; approximate answers were not graded",
        };
        writeln!(f, "{}\n{how}; {}", self.command, self.machine)?;
        if let Some(reason) = &self.ended_early {
            writeln!(f, "Ended early: {reason}. The finished runs are below.")?;
        }
        for RunRecord { name, validity, .. } in self.runs.iter().filter(|run| !run.validity.is_valid()) {
            let (case, repeat) = (&name.case, name.repeat + 1);
            let (load, policy, problems) = (case.intensity(), case.name(), validity.problems.join("; "));
            writeln!(f, "INVALID {} at {load}, {policy}, repeat {repeat}: {problems}", case.scenario)?;
        }
        writeln!(f, "\n{}", self.report)
    }
}

/// Identifies a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunName {
    /// What ran.
    #[serde(flatten)]
    pub case: Case,
    /// The repeat, counted from 0.
    pub repeat: usize,
    /// Its seed.
    pub seed: u64,
}

impl RunName {
    pub(crate) fn of(cell: &Cell, repeat: usize) -> Self {
        Self { case: cell.case.clone(), repeat, seed: cell.runs[repeat].seed }
    }
}

/// One run with real processes.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The run.
    #[serde(flatten)]
    pub name: RunName,
    /// Seconds since the experiment began.
    pub began_s: f64,
    /// Whether it is valid.
    pub validity: Validity,
    /// The file of its queries in the results folder.
    pub raw: PathBuf,
}

/// A query in a raw file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawLine {
    /// Counted from 0 with the warm-up.
    pub(crate) number: u64,
    /// Whether it is of the warm-up.
    pub(crate) warm_up: bool,
    pub(crate) sample: Sample,
    /// Whether the answer is the deployed model's. `None` if it was not compared.
    pub(crate) right: Option<bool>,
}

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates a folder. Rejects one that already has results.
    pub fn create(path: &Path) -> Result<Self, Error> {
        if path.join("experiment.toml").exists() {
            let reason = "it already has results: name another with --results".to_owned();
            return Err(Error::File { what: "use", path: path.into(), reason });
        }
        fs::create_dir_all(path).map_err(Error::file("create", path))?;
        Ok(Self { path: path.into() })
    }

    /// Creates a folder for joined results, or opens one that has results of this experiment.
    pub fn joined(path: &Path, config: &Config) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(Error::file("create", path))?;
        let folder = Self { path: path.into() };
        let file = path.join("experiment.toml");
        match fs::read_to_string(&file) {
            Err(_) => folder.keep_config(config)?,
            Ok(text) if Config::parse(&text).is_ok_and(|found| found == *config) => {}
            Ok(_) => {
                let reason = "it has results of another experiment: name another with --results".to_owned();
                return Err(Error::File { what: "use", path: path.into(), reason });
            }
        }
        Ok(folder)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the experiment as it runs.
    pub fn keep_config(&self, config: &Config) -> Result<(), Error> {
        let text =
            toml::to_string(config).map_err(|error| self.failed("experiment.toml", &error.to_string()))?;
        self.write("experiment.toml", text.as_bytes())
    }

    /// Writes a run's queries. Returns the file's path within the folder.
    pub(crate) fn keep_raw(
        &self,
        cell: &Cell,
        repeat: usize,
        lines: impl IntoIterator<Item = RawLine>,
    ) -> Result<PathBuf, Error> {
        let (load, policy) = (cell.case.intensity(), cell.case.name());
        let name = format!("{}-{load}-{policy}-{repeat}.csv", cell.case.scenario).replace([' ', '/'], "_");
        let place = Path::new("raw").join(name);
        let raw = self.path.join("raw");
        fs::create_dir_all(&raw).map_err(Error::file("create", &raw))?;
        let path = self.path.join(&place);
        let failed = || Error::file("write", &path);
        let mut file = std::io::BufWriter::new(File::create(&path).map_err(failed())?);
        writeln!(file, "{RAW_COLUMNS}").map_err(failed())?;
        for RawLine { number, warm_up, sample, right } in lines {
            let Sample { intended, latency, lag, outcome } = sample;
            let [intended, latency, lag] = [intended, latency, lag].map(|time| time.as_micros());
            let (outcome, warm_up) = (outcome.name(), u8::from(warm_up));
            let right = right.map_or("", |right| if right { "1" } else { "0" });
            writeln!(file, "{number},{warm_up},{intended},{latency},{lag},{outcome},{right}")
                .map_err(failed())?;
        }
        file.flush().map_err(failed())?;
        Ok(place)
    }

    /// Appends a simulated run, whose queries are in a raw file.
    pub(crate) fn note_simulated(&self, name: &RunName, raw: &Path) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Simulated<'a> {
            #[serde(flatten)]
            name: &'a RunName,
            raw: &'a Path,
        }
        self.note(&Simulated { name, raw })
    }

    /// Appends a finished run. One write keeps the lines of several threads apart.
    pub(crate) fn note(&self, record: &impl Serialize) -> Result<(), Error> {
        let path = self.path.join("runs.jsonl");
        let failed = || Error::file("write", &path);
        let mut line =
            serde_json::to_string(record).map_err(|error| self.failed("runs.jsonl", &error.to_string()))?;
        line.push('\n');
        let mut file = File::options().create(true).append(true).open(&path).map_err(failed())?;
        file.write_all(line.as_bytes()).map_err(failed())
    }

    /// Writes the results so far, for programs and for people.
    pub fn keep(&self, results: &Results) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(results)
            .map_err(|error| self.failed("results.json", &error.to_string()))?;
        self.write("results.json", &json)?;
        self.write("report.txt", results.to_string().as_bytes())
    }

    /// Replaces a file, so that readers and other joins never see a partial one.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        parm_grids::write(&path, content).map_err(Error::file("write", &path))
    }

    fn failed(&self, name: &str, reason: &str) -> Error {
        Error::File { what: "write", path: self.path.join(name), reason: reason.to_owned() }
    }
}
