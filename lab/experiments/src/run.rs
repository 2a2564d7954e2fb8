//! A run with real processes, from the frontend's start to a tally of all queries.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parm_simulator::{Ended, Run, Tally};
use parm_transport::client;
use tokio::runtime::Handle;

use crate::drive::{Driven, drive};
use crate::fleet::Fleet;
use crate::frontend::{Frontend, Order, Work};
use crate::reference::Reference;
use crate::worker::Script;
use crate::{Error, Stop, Validity};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) driven: Driven,
    pub(crate) validity: Validity,
}

/// The resources of a run.
pub(crate) struct Bench<'a> {
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) reference: &'a Arc<Reference>,
    pub(crate) stop: &'a Stop,
    pub(crate) runtime: &'a Handle,
}

/// From readiness to the first moment of the run: time to send the script to the workers.
const PREPARE: Duration = Duration::from_millis(200);

/// Runs a policy against the workers and restores them afterwards.
pub(crate) fn run(run: &Run, order: Order<'_>, bench: Bench<'_>) -> Result<Measured, Error> {
    let Bench { fleet, reference, stop, runtime } = bench;
    let mut frontend = Frontend::start(run, order)?;
    let _inside = runtime.enter();
    let unreachable = |error: parm_protocol::Error| Error::Process {
        what: "reach",
        name: order.name.into(),
        reason: error.to_string(),
    };
    let endpoint = frontend.url().parse().map_err(unreachable)?;
    let client = client::connect(&endpoint, &client::Config::default()).map_err(unreachable)?;
    let start = Instant::now() + PREPARE;
    let script = Script { faults: &run.faults, seed: run.seed, instances: run.shape.instances, start };
    fleet.tell(script)?;
    // The load has its own thread; this one starts and stops processes, which are tied to it.
    let (driven, played) = thread::scope(|scope| {
        let load = scope.spawn(|| drive(run, &client, reference, start, stop, runtime));
        let played = fleet.play(script, stop, || load.is_finished());
        if played.is_err() {
            stop.set();
        }
        let driven = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (driven, played)
    });
    played?;
    let (driven, took) = (driven?, start.elapsed());
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    frontend.check()?;
    let tally = tally(run, &driven, frontend.work()?, took);
    drop(frontend);
    fleet.recover()?;
    let validity = Validity::of(run, &driven);
    Ok(Measured { tally, driven, validity })
}

fn tally(run: &Run, driven: &Driven, work: Work, took: Duration) -> Tally {
    let mut tally = Tally::new(run.queries - run.warm_up, run.deadline).graded();
    for graded in &driven.samples {
        let Some(number) = graded.number.checked_sub(run.warm_up) else { continue };
        let latency = graded.sample.latency.as_nanos() as u64;
        let (outcome, wrong) = (graded.sample.outcome, !graded.right);
        tally.ended(Ended { number, latency, outcome, wrong });
    }
    // The number of jobs in full batches; further jobs are redundancy.
    let needed = (driven.samples.len() as u64)
        .div_ceil(u64::from(run.settings.batch.max_size.fixed().map_or(1, NonZeroU16::get)));
    (0..needed).for_each(|_| tally.started(true, 1.0));
    (needed..work.jobs).for_each(|_| tally.started(false, 1.0));
    let capacity = took.as_nanos() as u64 * u64::from(run.shape.instances);
    tally.finish((work.busy * 1e9) as u64, capacity, 0);
    tally
}
