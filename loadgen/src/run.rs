//! One open-loop run: requests go out when the schedule says, however the earlier ones fare.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Error as Refusal, InferResponse, Parameter};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::Error;
use crate::arrivals::Arrivals;
use crate::inputs::Inputs;
use crate::pacer::{self, Continue};
use crate::recorder::{Outcome, Recorder, Sample};

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How long requests are sent.
    pub length: Duration,
    /// Requests meant to be sent this early are not counted: connections, caches and queues settle meanwhile.
    pub warm_up: Duration,
    /// How long each request may take.
    pub deadline: Duration,
    /// Requests without an answer at most; beyond that a request is not sent and counts as failed, so that a dead server
    /// cannot eat this machine's memory.
    pub in_flight: usize,
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The counted samples, in order of their intended send times.
    pub samples: Vec<Sample>,
    /// Requests that should have been sent after the warm-up.
    pub offered: usize,
    /// Requests that were not sent because too many had no answer yet.
    pub dropped: usize,
    /// The first failure, if any.
    pub first_failure: Option<Refusal>,
}

/// Runs a plan against a server. Call it from a thread that may block, with the runtime that drives the client.
pub fn run(client: Arc<dyn Client>, inputs: &Inputs, plan: &Plan, runtime: &Handle) -> Result<Run, Error> {
    let schedule: Vec<Duration> =
        plan.arrivals.schedule(plan.seed)?.take_while(|at| *at < plan.length).collect();
    let offered = schedule.iter().filter(|at| **at >= plan.warm_up).count();
    let shared = Arc::new(Shared {
        recorder: Mutex::new(Recorder::new(offered)),
        first_failure: Mutex::new(None),
        room: Arc::new(Semaphore::new(plan.in_flight)),
    });
    let mut dropped = 0;
    let start = Instant::now() + Duration::from_millis(10);
    pacer::run(start, schedule, |index, intended, lag| {
        let counted = intended >= start + plan.warm_up;
        let Ok(permit) = shared.room.clone().try_acquire_owned() else {
            dropped += usize::from(counted);
            return Continue::Next;
        };
        let (client, shared, request) = (client.clone(), shared.clone(), inputs.request(index));
        let context = CallContext { deadline: Some(intended + plan.deadline), ..CallContext::default() };
        runtime.spawn(async move {
            let answer = client.infer(request, context).await;
            let sample = Sample {
                intended: intended - start,
                latency: intended.elapsed(),
                lag,
                outcome: outcome(&answer),
            };
            if counted {
                shared.recorder.lock().record(sample);
                if let Err(error) = answer {
                    shared.first_failure.lock().get_or_insert(error);
                }
            }
            drop(permit);
        });
        Continue::Next
    });
    wait_for_the_last(&shared.room, plan);
    let recorder = std::mem::replace(&mut *shared.recorder.lock(), Recorder::new(0));
    let first_failure = shared.first_failure.lock().take();
    Ok(Run { samples: recorder.in_order(), offered, dropped, first_failure })
}

struct Shared {
    recorder: Mutex<Recorder>,
    first_failure: Mutex<Option<Refusal>>,
    room: Arc<Semaphore>,
}

/// Every request ends by its deadline; a little longer is given for the client to say so.
fn wait_for_the_last(room: &Semaphore, plan: &Plan) {
    let patience = Instant::now() + plan.deadline + Duration::from_secs(5);
    while room.available_permits() < plan.in_flight && Instant::now() < patience {
        thread::sleep(Duration::from_millis(2));
    }
}

fn outcome(answer: &Result<InferResponse, Refusal>) -> Outcome {
    let Ok(response) = answer else { return Outcome::Failed };
    match response.parameters.get("parm_outcome").and_then(Parameter::as_str) {
        Some("reconstructed") => Outcome::Reconstructed,
        Some("hedged") => Outcome::Hedged,
        Some("default") => Outcome::Default,
        _ => Outcome::Exact,
    }
}
