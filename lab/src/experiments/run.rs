//! A run with real processes, from the frontend's start to the tally of all queries.
//!
//! The load's loop is [`parm_loadgen::run::Driver`]. A load generator's `Target` grades classes against labels; an experiment has
//! no labels and grades against a [`Reference`], so only the exchange is its own.

use std::num::NonZeroU16;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_loadgen::outcome::{self, Outcome};
use parm_loadgen::pacer::Due;
use parm_loadgen::recorder::Sample;
use parm_loadgen::run::Driver;
use parm_loadgen::validity;
use parm_protocol::client::{CallContext, Client};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::experiments::Laboratory;
use crate::experiments::processes::{Fleet, Frontend, Order, Script, Work};
use crate::experiments::reference::Reference;
use crate::experiments::results::RawLine;
use crate::simulator::{Run, Tally};

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    /// In the order of the queries.
    pub(crate) queries: Vec<RawLine>,
    pub(crate) validity: Validity,
}

/// The verdict on a run: if its own sender was late, the result does not describe the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Validity {
    /// Queries that should have been sent and counted.
    pub offered: u64,
    /// Queries that were sent.
    pub sent: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// 99th percentile of how late queries were sent, in milliseconds.
    pub lag_p99_ms: f64,
    /// Why the run is invalid; empty if it is valid.
    pub problems: Vec<String>,
    /// The first failure's message.
    pub failure: Option<String>,
}

#[derive(Default)]
struct Driven {
    queries: Vec<RawLine>,
    /// The first failure's message.
    failure: Option<String>,
}

/// From readiness to the first moment of the run: time to send the script to the workers.
const PREPARE: Duration = Duration::from_millis(200);
/// Most unanswered queries: a frontend that has crashed must not cost all memory.
const IN_FLIGHT: usize = 20_000;
/// How long the client may take, beyond the deadline, to report a timeout.
const SLACK: Duration = Duration::from_secs(2);

/// Runs a policy against the workers and restores them afterwards.
pub(crate) fn run(
    laboratory: &Laboratory<'_>,
    run: &Run,
    order: Order<'_>,
    fleet: &mut Fleet,
    reference: &Arc<Reference>,
) -> Result<Measured, Error> {
    let Laboratory { stop, runtime, connect, .. } = laboratory;
    let mut frontend = Frontend::start(run, order)?;
    let client = connect(&frontend.url()).map_err(|error| Error::Process {
        what: "reach",
        name: order.name.into(),
        reason: error.to_string(),
    })?;
    let start = Instant::now() + PREPARE;
    let script = Script { faults: &run.faults, seed: run.seed, instances: run.instances, start };
    fleet.tell(script)?;
    // The load has its own thread; this one starts and stops processes, which are tied to it.
    let (driven, played) = thread::scope(|scope| {
        let load = scope.spawn(|| drive(run, &client, reference, start, stop, runtime));
        let played = fleet.play(script, stop, || load.is_finished());
        if played.is_err() {
            stop.cancel();
        }
        let driven = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (driven, played)
    });
    played?;
    let (Driven { queries, failure }, took) = (driven?, start.elapsed());
    if stop.is_cancelled() {
        return Err(Error::Interrupted);
    }
    frontend.check()?;
    let tally = tally(run, &queries, frontend.work()?, took);
    drop(frontend);
    fleet.recover()?;
    let validity = Validity { failure, ..Validity::of(run, &queries) };
    Ok(Measured { tally, queries, validity })
}

/// Sends the queries of a run, each at its time, and compares the answers with the deployed model's. Blocks until each is
/// answered or past its deadline.
fn drive(
    run: &Run,
    client: &Arc<dyn Client>,
    reference: &Arc<Reference>,
    start: Instant,
    stop: &CancellationToken,
    runtime: &Handle,
) -> Result<Driven, Error> {
    let schedule = run.arrivals.schedule(run.seed)?.take(run.queries as usize);
    let queries = Vec::with_capacity(run.queries as usize);
    let driven = Arc::new(Mutex::new(Driven { queries, failure: None }));
    let driver = Driver::new(IN_FLIGHT, runtime.clone());
    driver.run(start, schedule, |Due { index, intended, lag }, permit| {
        if stop.is_cancelled() {
            return ControlFlow::Break(());
        }
        let Some(permit) = permit else { return ControlFlow::Continue(()) };
        let (client, reference, driven) = (client.clone(), reference.clone(), driven.clone());
        let context =
            CallContext { deadline: Some((intended + run.deadline).into()), ..CallContext::default() };
        let (number, warm_up) = (index as u64, (index as u64) < run.warm_up);
        permit.spawn(async move {
            let answer = client.infer(reference.request(index), context).await;
            let latency = intended.elapsed();
            let outcome = answer.as_ref().map_or(Outcome::Failed, outcome::of);
            let graded = answer.as_ref().ok().filter(|_| outcome.is_answer());
            let right = graded.map(|answer| reference.is_right(index, answer));
            let sample = Sample { intended: intended - start, latency, lag, outcome };
            let mut driven = driven.lock();
            driven.queries.push(RawLine { number, warm_up, sample, right });
            if let Err(error) = answer {
                driven.failure.get_or_insert_with(|| error.to_string());
            }
        });
        ControlFlow::Continue(())
    });
    driver.wait(run.deadline + SLACK, || stop.is_cancelled());
    let mut driven = std::mem::take(&mut *driven.lock());
    driven.queries.sort_unstable_by_key(|query| query.number);
    Ok(driven)
}

fn tally(run: &Run, queries: &[RawLine], work: Work, took: Duration) -> Tally {
    let mut tally = Tally::new(run.queries - run.warm_up, run.deadline).graded();
    for RawLine { number, sample, right, .. } in queries {
        let Some(number) = number.checked_sub(run.warm_up) else { continue };
        tally.ended(number, sample.latency.as_nanos() as u64, sample.outcome, *right != Some(true));
    }
    // The number of jobs in full batches; further jobs are redundancy.
    let needed = (queries.len() as u64)
        .div_ceil(u64::from(run.settings.batch.max_size.fixed().map_or(1, NonZeroU16::get)));
    (0..needed).for_each(|_| tally.started(true, 1.0));
    (needed..work.jobs).for_each(|_| tally.started(false, 1.0));
    let capacity = took.as_nanos() as u64 * u64::from(run.instances);
    tally.finish((work.busy * 1e9) as u64, capacity, 0);
    tally
}

impl Validity {
    fn of(run: &Run, queries: &[RawLine]) -> Self {
        let samples: Vec<Sample> =
            queries.iter().filter(|query| !query.warm_up).map(|query| query.sample).collect();
        let (offered, sent) = (run.queries - run.warm_up, samples.len() as u64);
        let failed = samples.iter().filter(|sample| sample.outcome == Outcome::Failed).count() as u64;
        // Scenarios with faults are meant to fail queries: no share of failures makes a run invalid.
        let judged = validity::Validity::of(1.0, &samples, offered as usize);
        let (lag_p99_ms, problems) = (judged.lag_p99_ms, judged.faults);
        Self { offered, sent, failed, lag_p99_ms, problems, failure: None }
    }

    /// Whether the run is valid.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }
}
