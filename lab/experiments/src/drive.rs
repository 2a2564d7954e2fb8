//! The load of a run: each query is sent at its time and compared with the deployed model's answer.
//!
//! The loop is [`parm_loadgen::run::Driver`]. A load generator's `Target` grades classes against labels; an experiment has
//! no labels and grades against a [`Reference`], so only the exchange is its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_loadgen::outcome::{self, Outcome};
use parm_loadgen::pacer::Continue;
use parm_loadgen::recorder::Sample;
use parm_loadgen::run::{Driver, Due};
use parm_protocol::client::{CallContext, Client};
use parm_simulator::Run;
use tokio::runtime::Handle;

use crate::reference::Reference;
use crate::{Error, Stop};

/// A query's end, compared with the deployed model's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Graded {
    /// The query's number, counted from 0 with the warm-up.
    pub number: u64,
    /// Its times and outcome.
    pub sample: Sample,
    /// Whether the answer is the deployed model's.
    pub right: bool,
}

/// The samples of a run in the order of the queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driven {
    pub(crate) samples: Vec<Graded>,
    /// The first failure's message.
    pub(crate) failure: Option<String>,
}

/// Most unanswered queries: a frontend that has crashed must not cost all memory.
const IN_FLIGHT: usize = 20_000;
/// How long the client may take, beyond the deadline, to report a timeout.
const SLACK: Duration = Duration::from_secs(2);

/// Sends the queries of a run. Blocks until each is answered or past its deadline.
pub(crate) fn drive(
    run: &Run,
    client: &Arc<dyn Client>,
    reference: &Arc<Reference>,
    start: Instant,
    stop: &Stop,
    runtime: &Handle,
) -> Result<Driven, Error> {
    let schedule = run.arrivals.schedule(run.seed)?.take(run.queries as usize);
    let samples = Vec::with_capacity(run.queries as usize);
    let driven = Arc::new(Mutex::new(Driven { samples, failure: None }));
    let driver = Driver::new(IN_FLIGHT, runtime.clone());
    driver.run(start, schedule, |Due { index, intended, lag }, permit| {
        if stop.is_set() {
            return Continue::Stop;
        }
        let Some(permit) = permit else { return Continue::Next };
        let (client, reference, driven) = (client.clone(), reference.clone(), driven.clone());
        let context =
            CallContext { deadline: Some((intended + run.deadline).into()), ..CallContext::default() };
        permit.spawn(async move {
            let answer = client.infer(reference.request(index), context).await;
            let latency = intended.elapsed();
            let right = answer.as_ref().is_ok_and(|answer| reference.is_right(index, answer));
            let outcome = answer.as_ref().map_or(Outcome::Failed, outcome::of);
            let sample = Sample { intended: intended - start, latency, lag, outcome };
            let mut driven = driven.lock();
            driven.samples.push(Graded { number: index as u64, sample, right });
            if let Err(error) = answer {
                driven.failure.get_or_insert_with(|| error.to_string());
            }
        });
        Continue::Next
    });
    driver.wait(run.deadline + SLACK, || stop.is_set());
    let mut driven = std::mem::take(&mut *driven.lock());
    driven.samples.sort_unstable_by_key(|graded| graded.number);
    Ok(driven)
}
