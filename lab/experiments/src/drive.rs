//! The load of a run: every request at its own time, however the others fare, and what came of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_loadgen::pacer::{self, Continue};
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Error as Refusal, InferResponse, Parameter};
use parm_simulator::{Outcome, Run};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::reference::Reference;
use crate::{Error, Stop};

/// One query's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which one, counted from 0 with the warm-up.
    pub number: u64,
    /// When it was meant to be sent, from the start of the run.
    pub intended: Duration,
    /// From then to its answer.
    pub latency: Duration,
    /// How late it was sent.
    pub lag: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether the answer is the deployed model's.
    pub right: bool,
}

/// What came of a run, in the order of the queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driven {
    pub(crate) samples: Vec<Sample>,
    /// Queries that were not sent because too many had no answer.
    pub(crate) dropped: u64,
    /// The first failure's message.
    pub(crate) failure: Option<String>,
}

/// Queries without an answer at most: a frontend that is gone must not cost all memory.
const IN_FLIGHT: usize = 20_000;
/// How long the client may take, beyond the deadline, to say that it has passed.
const SLACK: Duration = Duration::from_secs(2);

struct Shared {
    driven: Mutex<Driven>,
    room: Arc<Semaphore>,
    reference: Arc<Reference>,
}

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
    let driven = Driven { samples: Vec::with_capacity(run.queries as usize), ..Driven::default() };
    let room = Arc::new(Semaphore::new(IN_FLIGHT));
    let shared = Arc::new(Shared { driven: Mutex::new(driven), room, reference: reference.clone() });
    let dropped = AtomicUsize::new(0);
    pacer::run(start, schedule, |index, intended, lag| {
        if stop.is_set() {
            return Continue::Stop;
        }
        let Ok(permit) = shared.room.clone().try_acquire_owned() else {
            dropped.fetch_add(1, Ordering::Relaxed);
            return Continue::Next;
        };
        let (client, shared) = (client.clone(), shared.clone());
        let context =
            CallContext { deadline: Some((intended + run.deadline).into()), ..CallContext::default() };
        runtime.spawn(async move {
            let answer = client.infer(shared.reference.request(index), context).await;
            let latency = intended.elapsed();
            let right = answer.as_ref().is_ok_and(|answer| shared.reference.is_right(index, answer));
            let (number, intended, outcome) = (index as u64, intended - start, outcome(&answer));
            let mut driven = shared.driven.lock();
            driven.samples.push(Sample { number, intended, latency, lag, outcome, right });
            if let Err(error) = answer {
                driven.failure.get_or_insert_with(|| error.to_string());
            }
            drop(permit);
        });
        Continue::Next
    });
    let patience = Instant::now() + run.deadline + SLACK;
    while shared.room.available_permits() < IN_FLIGHT && Instant::now() < patience && !stop.is_set() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut driven = std::mem::take(&mut *shared.driven.lock());
    driven.samples.sort_unstable_by_key(|sample| sample.number);
    driven.dropped = dropped.into_inner() as u64;
    Ok(driven)
}

fn outcome(answer: &Result<InferResponse, Refusal>) -> Outcome {
    let Ok(response) = answer else { return Outcome::Rejected };
    match response.parameters.get("parm_outcome").and_then(Parameter::as_str) {
        Some("reconstructed") => Outcome::Reconstructed,
        Some("hedged") => Outcome::Hedged,
        Some("backup") => Outcome::Backup,
        Some("stand-in") => Outcome::StandIn,
        Some("default") => Outcome::Default,
        _ => Outcome::Exact,
    }
}
