//! `parm tune`: searches a configuration of `parm serve` for the expected load and faults of a cluster.

mod files;
mod problem;
mod worth;

pub use problem::read as recorded;

use std::num::NonZeroUsize;
use std::thread;

use parm_lab::tuner::{Plan, Search};

use crate::cli::tune::Tune;
use crate::progress::Bar;
use crate::{Failure, printer};

/// Runs the command. Invalid input ends with status 64.
pub fn main(flags: &Tune) -> Result<(), Failure> {
    let problem = problem::of(flags).map_err(Failure::Configuration)?;
    files::check(&flags.out).map_err(Failure::Configuration)?;
    let plan = Plan {
        seed: flags.seed,
        queries: flags.queries,
        repeats: flags.repeats,
        threads: flags.threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get),
    };
    let search = Search::new(&problem, plan).map_err(|error| Failure::Configuration(error.into()))?;
    let bar = Bar::new(search.queries(), "queries");
    let report = search.run(&bar).map_err(|error| Failure::Run(error.into()))?;
    drop(bar);
    let written = files::write(&flags.out, &report).map_err(Failure::Run)?;
    printer::show(&report, flags.output).map_err(Failure::Run)?;
    eprintln!("wrote {}", written.display());
    Ok(())
}
