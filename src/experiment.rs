//! `parm experiment`: compares policies under load and faults, with processes or in virtual time.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use parm_grids::Share;
use parm_lab::experiments::{
    self, Config, Connect, Folder, GRID, Laboratory, Mode, Position, Report, Results, Validity, line_of,
    machine,
};
use parm_transport::client;
use tokio_util::sync::CancellationToken;

use crate::cli::Output;
use crate::environment::command_line;
use crate::grid::{self, Grid, Task};
use crate::progress::Bar;
use crate::simulate::{apply, placed, read};
use crate::{Failure, printer};

pub const EXAMPLES: &str = "Examples:
  parm experiment lab/experiments/tail.toml
      with real processes; the report is results/tail/report.txt
  parm experiment lab/experiments/tail.toml --simulate
      in virtual time";

/// `parm experiment`.
#[derive(Debug, Args)]
pub struct Experiment {
    /// Experiment file (TOML); flags override it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Use virtual time, not real processes
    #[arg(long)]
    pub simulate: bool,
    /// Keep each query of a simulation in raw/, as with real processes
    #[arg(long, requires = "simulate")]
    pub raw: bool,
    /// Folder for results, without earlier ones [default: results/NAME, numbered if it exists]
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    #[command(flatten)]
    pub cases: Cases,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(flatten)]
    pub grid: Grid,
}

/// What is run, with real processes or in virtual time. Flags override the experiment file.
#[derive(Debug, Args)]
pub struct Cases {
    /// Policy or rival, built in or of the file (repeat) [default: those of the file, or all built-in policies]
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Scenario, built in or of the file, or several joined by `+` (repeat) [default: those of the file, or clean, A, B, AB, hang]
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Profile of measured slowness or load, replayed from a public trace, instead of the scenarios (repeat)
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Load, as a share of the capacity of the deployed instances (repeat) [default: that of the file, or 0.3, 0.5, 0.7, 0.85]
    #[arg(long, value_name = "SHARE")]
    pub load: Vec<f64>,
    /// Queries in a run; at most a tenth are its warm-up [default: those of the file, or 1000000]
    #[arg(long, value_name = "N")]
    pub queries: Option<NonZeroU64>,
    /// Runs of each policy, scenario and load, with different seeds [default: those of the file, or 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<NonZeroU32>,
    /// Seed of arrivals, service times and faults [default: that of the file, or 1]
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Runs the command. An invalid file ends with status 64. An experiment that ends early has status 1, and the folder holds
/// its results so far.
pub fn main(flags: &Experiment) -> Result<(), Failure> {
    let (config, text) = config(flags).map_err(Failure::Configuration)?;
    let experiment = experiments::Experiment::new(config);
    let experiment = experiment.map_err(|error| Failure::Configuration(placed(error, &flags.file, &text)))?;
    let task = Task::of(&flags.grid);
    if !matches!(task, Task::Whole) {
        return share(flags, &experiment, task);
    }
    let path = flags.results.clone().unwrap_or_else(|| free_folder(&flags.file));
    let folder = Folder::create(&path).map_err(|error| Failure::Configuration(error.into()))?;
    let results = if flags.simulate {
        simulated(&experiment, &folder, flags.raw)
    } else {
        // Most of these errors are about processes.
        let told = |error| match line_of(&text, &error) {
            Some(_) => placed(error, &flags.file, &text),
            None => error.into(),
        };
        with_processes(&experiment, &folder, told)
    };
    let results = results.map_err(Failure::Run)?;
    printer::show(&results.report, flags.output).map_err(Failure::Run)?;
    if flags.output == Output::Text {
        eprintln!("report: {}", path.join("report.txt").display());
    }
    match results.ended_early {
        None => Ok(()),
        Some(reason) => Err(Failure::Run(anyhow::anyhow!(
            "ended early, results so far are in {}: {reason}",
            path.display()
        ))),
    }
}

/// Runs a share of a simulated experiment, or joins the results of all.
fn share(flags: &Experiment, experiment: &experiments::Experiment, task: Task) -> Result<(), Failure> {
    let rejected = |reason: &'static str| Err(Failure::Configuration(anyhow::anyhow!(reason)));
    if !flags.simulate {
        return rejected(
            "--share and --join need --simulate: real processes are compared on one machine, in turns",
        );
    }
    if flags.raw {
        return rejected("--raw cannot be shared: run the experiment in one process, or leave it out");
    }
    let cells = experiment.grid().map_err(|error| Failure::Run(error.into()))?;
    let path = flags.results.clone().unwrap_or_else(|| default_folder(&flags.file, 1));
    // A join of a few cells would replace the report of a whole run.
    if matches!(task, Task::Run(_)) && path.join("report.txt").exists() && !path.join("cells").exists() {
        let shown = path.display();
        let reason =
            anyhow::anyhow!("{shown} has the report of a whole run: name another folder with --results");
        return Err(Failure::Configuration(reason));
    }
    match task {
        Task::Join(folders) => join(flags, experiment, (&folders, &cells)),
        Task::Run(share) => run_share(experiment, &path, share, &cells),
        Task::Whole => Ok(()),
    }
    .map_err(Failure::Run)
}

fn run_share(
    experiment: &experiments::Experiment,
    results: &Path,
    share: Share,
    cells: &[parm_grids::Cell],
) -> anyhow::Result<()> {
    let folder = parm_grids::Folder::create(results, GRID)?;
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let bar = Bar::spinner("queries");
    experiment.run_share(&folder, share, threads, &bar)?;
    drop(bar);
    let (own, all, shown) = (share.of(cells).len(), cells.len(), results.display());
    eprintln!("share {share}: {own} of {all} cells have results in {shown}");
    Ok(())
}

/// Writes the report of the joined folders, with the finished cells only if some are missing.
fn join(
    flags: &Experiment,
    experiment: &experiments::Experiment,
    (folders, cells): (&[PathBuf], &[parm_grids::Cell]),
) -> anyhow::Result<()> {
    let joined = parm_grids::join(folders, GRID, cells)?;
    let is_whole = grid::reported(&joined);
    let report = experiment.joined(&joined.records)?;
    let path = flags.results.as_ref().unwrap_or(&folders[0]);
    let folder = Folder::joined(path, experiment.config())?;
    let missing = format!("{} of {} runs have no result", cells.len() - joined.records.len(), cells.len());
    let ended_early = (!is_whole).then_some(missing);
    let results = kept(&folder, report, now()?, ended_early.clone())?;
    printer::show(&results.report, flags.output)?;
    if flags.output == Output::Text {
        eprintln!("report: {}", path.join("report.txt").display());
    }
    ended_early.map_or(Ok(()), |reason| Err(anyhow::anyhow!("joined in part: {reason}")))
}

fn simulated(experiment: &experiments::Experiment, folder: &Folder, raw: bool) -> anyhow::Result<Results> {
    let began = now()?;
    folder.keep_config(experiment.config())?;
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let bar = Bar::new(experiment.queries(), "queries");
    let report = experiment.run(threads, &bar, raw.then_some(folder))?;
    drop(bar);
    kept(folder, report, began, None)
}

/// Seconds since 1970.
fn now() -> anyhow::Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// Writes the results of a simulation.
fn kept(folder: &Folder, report: Report, began: u64, ended_early: Option<String>) -> anyhow::Result<Results> {
    let (mode, machine, command) = (Mode::Simulation, machine(), command_line());
    let results = Results { mode, command, began, machine, ended_early, report, runs: Vec::new() };
    folder.keep(&results)?;
    Ok(results)
}

fn with_processes(
    experiment: &experiments::Experiment,
    folder: &Folder,
    told: impl FnOnce(parm_lab::Error) -> anyhow::Error,
) -> anyhow::Result<Results> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    runtime.spawn(interrupted(stop.clone()));
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let connect: Connect = |url| client::connect(&url.parse()?, &client::Config::default());
    let laboratory =
        Laboratory { binary, folder, command: command_line(), stop, runtime: runtime.handle(), connect };
    let results = laboratory.run(experiment, line).map_err(told)?;
    // Tasks that still wait for an answer would not get one.
    runtime.shutdown_background();
    Ok(results)
}

/// Ends the experiment at the first interrupt, with the results so far. A second one ends the program and its processes.
async fn interrupted(stop: CancellationToken) -> anyhow::Result<()> {
    crate::shutdown::token()?.cancelled().await;
    eprintln!("interrupted: writing the results so far");
    stop.cancel();
    Ok(())
}

/// Prints a line on stderr for every run.
fn line(position: &Position<'_>, ended: Option<&Validity>) {
    let Position { number, of, cell, repeat } = position;
    let Some(Validity { sent, failed, problems, .. }) = ended else {
        let (scenario, load, policy) = (&cell.case.scenario, cell.case.intensity(), &cell.case.policy);
        let (number, repeat) = (number + 1, repeat + 1);
        return eprint!("{number:>4} of {of}: {scenario} at {load}, {policy}, repeat {repeat} ... ");
    };
    let verdict =
        if problems.is_empty() { "valid".to_owned() } else { format!("INVALID: {}", problems.join("; ")) };
    eprintln!("{sent} counted, {failed} failed, {verdict}");
}

/// Reads the experiment file, with the changes of the flags. Returns its text as well.
fn config(flags: &Experiment) -> anyhow::Result<(Config, String)> {
    let (mut config, text) = read(&flags.file)?;
    apply(&flags.cases, &mut config)?;
    Ok((config, text))
}

/// Returns `results/NAME`, or the first of `results/NAME-2`, `-3`, ... that does not exist.
fn free_folder(file: &Path) -> PathBuf {
    let folder = |number| default_folder(file, number);
    (1..).map(folder).find(|path| !path.exists()).unwrap_or_else(|| folder(1))
}

fn default_folder(file: &Path, number: u32) -> PathBuf {
    let name = file.file_stem().map_or("experiment".into(), |stem| stem.to_string_lossy());
    match number {
        1 => Path::new("results").join(&*name),
        number => Path::new("results").join(format!("{name}-{number}")),
    }
}
