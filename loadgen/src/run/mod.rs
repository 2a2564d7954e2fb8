//! Runs: requests to a server, open-loop (on a schedule, however slow the earlier ones are) or closed-loop (each when an
//! earlier one is answered).
//!
//! A closed loop measures a server's throughput (offline) or the time of one answer (single-stream, multi-stream). It does
//! not measure a tail under load, because a slow answer delays the next request.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parm_protocol::InferResponse;
use parm_protocol::client::{CallContext, Client};
use parm_workload::arrivals::Arrivals;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;
use crate::chat::{Answers, Chats};
use crate::failures::{Failure, Failures};
use crate::grader::Grader;
use crate::inputs::Inputs;
use crate::live::{Ended, Live};
use crate::outcome::{self, Outcome, Tally};
use crate::pacer::{self, Due};
use crate::recorder::Sample;

/// The most samples that a run keeps, about 300 MB of them: quantiles and their intervals need all, in order.
pub const MOST_SAMPLES: usize = 5_000_000;

/// A server and the requests for it.
#[derive(Clone)]
pub struct Target {
    /// The requests, and the connection to the server.
    pub work: Work,
    /// Drives the connection.
    pub runtime: Handle,
    /// Records the results and shows them meanwhile. One for each run.
    pub live: Arc<Live>,
}

/// What a run sends.
#[derive(Clone)]
pub enum Work {
    /// Queries for a model.
    Queries(Queries),
    /// Chats for a server of a language model. The latency of a chat is the time to its first token.
    Chats(Chats),
}

/// Queries and the server for them.
#[derive(Clone)]
pub struct Queries {
    /// The connection to the server.
    pub client: Arc<dyn Client>,
    /// The requests.
    pub inputs: Inputs,
    /// Compares answers with the labels of the inputs, if there are any.
    pub grader: Option<Grader>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// The counted samples, in order of their intended send times.
    pub samples: Vec<Sample>,
    /// Requests that should have been sent after the warm-up.
    pub offered: usize,
    /// Requests that were not sent because too many were unanswered. They are among the samples, as late as the deadline.
    pub dropped: usize,
    /// Requests by outcome, and the rows that were right.
    pub tally: Tally,
    /// From the end of the warm-up to the last time a request was to be sent, or to the last answer of a closed loop.
    pub length: Duration,
    /// The failed requests by reason.
    pub failures: Failures,
    /// The answers of chats; `None` for queries.
    pub chats: Option<Answers>,
}

/// The plan of an open-loop run.
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
    /// Most unanswered requests; beyond that a request is not sent and counts as late as the deadline.
    pub in_flight: usize,
}

/// The plan of a closed-loop run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Concurrent requests.
    pub streams: usize,
    /// How long requests are sent.
    pub length: Duration,
    /// Requests sent this early are not counted.
    pub warm_up: Duration,
    /// How long each request may take.
    pub deadline: Duration,
}

/// How long the client may take, beyond the deadline, to report a timeout.
const SLACK: Duration = Duration::from_secs(5);
/// Who stops a run waits for its answers only if they have a shorter deadline than this.
const LONG: Duration = Duration::from_secs(60);
/// Pause between a failure and the stream's next request, so that a server that rejects requests is not overloaded.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

impl Target {
    /// Runs an open-loop plan. Call it from a thread that may block.
    pub fn open(&self, plan: &Plan) -> Result<Run, Error> {
        let counted_seconds = plan.length.saturating_sub(plan.warm_up).as_secs_f64();
        let expected = plan.arrivals.rate() * counted_seconds;
        if expected > MOST_SAMPLES as f64 {
            return Err(Error::TooManySamples { expected: expected as u64, most: MOST_SAMPLES });
        }
        self.live.expect((1.05 * expected) as usize);
        let schedule = plan.arrivals.schedule(plan.seed)?.take_while(|at| *at < plan.length);
        let driver = Driver::new(plan.in_flight, self.runtime.clone());
        let target = Arc::new(self.clone());
        let (mut offered, mut dropped) = (0, 0);
        let start = Instant::now() + Duration::from_millis(10);
        driver.run(start, schedule, |Due { index, intended, lag }, permit| {
            let counted = intended >= start + plan.warm_up;
            if self.live.is_stopped() || offered == MOST_SAMPLES {
                return ControlFlow::Break(());
            }
            offered += usize::from(counted);
            let exchange = Exchange { index, start, intended, lag, counted, deadline: plan.deadline };
            match permit {
                Some(permit) => {
                    let target = target.clone();
                    permit.spawn(async move { _ = exchange.run(&target).await });
                }
                None => {
                    dropped += usize::from(counted);
                    self.live.record(exchange.unanswered(Duration::ZERO, Outcome::Dropped, None));
                }
            }
            ControlFlow::Continue(())
        });
        let end = match &plan.arrivals {
            _ if self.live.is_stopped() => start.elapsed().min(plan.length),
            Arrivals::Trace { seconds } => {
                let last = seconds.last().and_then(|last| Duration::try_from_secs_f64(*last).ok());
                plan.length.min(last.unwrap_or_default())
            }
            _ => plan.length,
        };
        // Every request ends by its deadline, plus the time that the client needs to report it.
        driver.wait(plan.deadline + SLACK, || plan.deadline > LONG && self.live.is_stopped());
        let length = end.saturating_sub(plan.warm_up);
        let mut run = Run { offered, dropped, length, ..self.live.take() };
        if let Work::Chats(chats) = &self.work {
            run.chats.get_or_insert_default().repeated = chats.wire.repeated();
        }
        Ok(run)
    }

    /// Runs a closed-loop plan. Call it from a thread that may block.
    pub fn closed(&self, plan: &Closed) -> Run {
        self.live.expect(0);
        let start = Instant::now();
        let next = Arc::new(AtomicUsize::new(0));
        let target = Arc::new(self.clone());
        let streams: Vec<_> = (0..plan.streams)
            .map(|_| self.runtime.spawn(stream(target.clone(), *plan, start, next.clone())))
            .collect();
        self.runtime.block_on(async {
            for stream in streams {
                // A stream that panicked has sent fewer requests; its samples are recorded.
                let _ = stream.await;
            }
        });
        let length = start.elapsed().saturating_sub(plan.warm_up);
        let run = self.live.take();
        Run { offered: run.samples.len(), length, ..run }
    }
}

async fn stream(target: Arc<Target>, plan: Closed, start: Instant, next: Arc<AtomicUsize>) {
    loop {
        let intended = Instant::now();
        let elapsed = intended - start;
        let full = target.live.recorded() >= MOST_SAMPLES - plan.streams;
        if elapsed >= plan.length || target.live.is_stopped() || full {
            return;
        }
        let exchange = Exchange {
            index: next.fetch_add(1, Ordering::Relaxed),
            start,
            intended,
            lag: Duration::ZERO,
            counted: elapsed >= plan.warm_up,
            deadline: plan.deadline,
        };
        if !exchange.run(&target).await {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Its number.
    pub(crate) index: usize,
    /// When the run began.
    pub(crate) start: Instant,
    /// When the request was to be sent.
    pub(crate) intended: Instant,
    /// How late it is.
    pub(crate) lag: Duration,
    /// Whether the warm-up is over.
    pub(crate) counted: bool,
    /// How long it may take.
    pub(crate) deadline: Duration,
}

impl Exchange {
    /// Sends the request and records its end. Returns whether it was answered.
    async fn run(self, target: &Target) -> bool {
        let ended = match &target.work {
            Work::Queries(queries) => self.query(queries).await,
            Work::Chats(chats) => chats.exchange(self).await,
        };
        let answered = ended.failure.is_none();
        target.live.record(ended);
        answered
    }

    async fn query(self, queries: &Queries) -> Ended {
        let request = queries.inputs.request(self.index);
        let context =
            CallContext { deadline: Some((self.intended + self.deadline).into()), ..CallContext::default() };
        let answer = queries.client.infer(request, context).await;
        let took = self.intended.elapsed();
        match answer {
            Ok(response) => Ended {
                sample: self.sample(took, outcome::of(&response)),
                counted: self.counted,
                rows: self.graded(queries, &response),
                chat: None,
                failure: None,
            },
            Err(failure) => self.unanswered(took, Outcome::Failed, Some(failure.into())),
        }
    }

    /// No answer is never a quick one: it counts as late as the deadline, so that errors cannot make a tail look short.
    pub(crate) fn unanswered(self, took: Duration, outcome: Outcome, failure: Option<Failure>) -> Ended {
        let sample = self.sample(took.max(self.deadline), outcome);
        Ended { sample, counted: self.counted, rows: Vec::new(), chat: None, failure }
    }

    pub(crate) fn sample(self, latency: Duration, outcome: Outcome) -> Sample {
        Sample { intended: self.intended - self.start, latency, lag: self.lag, outcome }
    }

    fn graded(self, queries: &Queries, response: &InferResponse) -> Vec<(Outcome, bool)> {
        let (Some(grader), Some(labels)) = (&queries.grader, queries.inputs.labels(self.index)) else {
            return Vec::new();
        };
        let outcomes = outcome::of_rows(response, labels.len());
        let classes = grader.classes(response, labels.len());
        let right = classes.iter().zip(labels).map(|(class, label)| *class == Some(*label));
        outcomes.into_iter().zip(right).collect()
    }
}

/// The open loop: starts each request at its time, whatever the earlier ones do, with a bound on unanswered requests, which keeps a
/// dead server from filling this machine's memory.
#[derive(Debug)]
pub struct Driver {
    room: Arc<Semaphore>,
    in_flight: usize,
    runtime: Handle,
}

/// Room for one unanswered request.
#[derive(Debug)]
pub struct Permit {
    held: OwnedSemaphorePermit,
    runtime: Handle,
}

impl Driver {
    /// Bounds the unanswered requests; `runtime` drives their exchanges.
    pub fn new(in_flight: usize, runtime: Handle) -> Self {
        Self { room: Arc::new(Semaphore::new(in_flight)), in_flight, runtime }
    }

    /// Calls `send` at each time after `start`, with a permit on which the caller spawns its exchange, or without one when too many
    /// requests are unanswered. It ends with the schedule or when `send` stops it, and blocks the calling thread.
    pub fn run(
        &self,
        start: Instant,
        schedule: impl IntoIterator<Item = Duration>,
        mut send: impl FnMut(Due, Option<Permit>) -> ControlFlow<()>,
    ) {
        pacer::run(start, schedule, |due| {
            let held = self.room.clone().try_acquire_owned().ok();
            send(due, held.map(|held| Permit { held, runtime: self.runtime.clone() }))
        });
    }

    /// Waits until every exchange has ended, `patience` is over or `stopped` says so.
    pub fn wait(&self, patience: Duration, stopped: impl Fn() -> bool) {
        let until = Instant::now() + patience;
        while self.room.available_permits() < self.in_flight && Instant::now() < until && !stopped() {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Permit {
    /// Runs an exchange, which counts as unanswered until it ends.
    pub fn spawn(self, exchange: impl Future<Output = ()> + Send + 'static) {
        let Self { held, runtime } = self;
        runtime.spawn(async move {
            exchange.await;
            drop(held);
        });
    }
}

#[cfg(test)]
pub(crate) mod tests;
