//! An open-loop run: requests are sent on their schedule, however slow the earlier ones are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use parm_workload::arrivals::Arrivals;
use parm_workload::chat::{Requests, Timed, Tokens};
use tokio::runtime::Handle;

use super::api::Maker;
use super::exchange::{ChatFailure, FailureKind, Seen};
use super::{ChatSample, Wire};
use crate::Error;
use crate::failures::Failures;
use crate::live::{Ended, Live};
use crate::outcome::Outcome;
use crate::pacer::Continue;
use crate::recorder::{Sample, histogram, nanos};
use crate::run::{Driver, Due, MOST_SAMPLES, Run};

/// When requests are sent, and their sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Requests of one size.
    Steady(Arrivals, Tokens),
    /// Recorded requests.
    Recorded(Requests),
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct ChatPlan {
    /// When requests are sent, and their sizes.
    pub traffic: Traffic,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How long requests are sent; `None` replays a whole recording.
    pub length: Option<Duration>,
    /// Requests meant to be sent this early are not counted.
    pub warm_up: Duration,
    /// Largest number of requests, those of the warm-up included.
    pub requests: usize,
    /// How long the whole answer of each request may take.
    pub deadline: Duration,
    /// Most unanswered requests; beyond that a request is not sent and counts as late as the deadline.
    pub in_flight: usize,
}

/// A server and the requests for it.
#[derive(Clone)]
pub struct ChatTarget {
    /// The connection to the server.
    pub wire: Arc<dyn Wire>,
    /// Makes the requests.
    pub maker: Maker,
    /// Drives the connections.
    pub runtime: Handle,
    /// Shows times to the first token meanwhile. One for each run.
    pub live: Arc<Live>,
}

/// The result of a run.
#[derive(Debug)]
pub struct ChatRun {
    /// The times to the first token as the samples of an ordinary run, which the rules of validity and thresholds read.
    pub firsts: Run,
    /// The counted samples, in order of their intended send times.
    pub samples: Vec<ChatSample>,
    /// Nanoseconds between tokens, of all counted streams.
    pub gaps: Histogram<u64>,
    /// The first failure, if any.
    pub first_failure: Option<String>,
    /// From the end of the warm-up to the end of the last counted answer.
    pub busy: Duration,
    /// Requests that were sent twice, those of the warm-up included.
    pub repeated: u64,
}

/// The records of a run in progress.
struct Records {
    samples: Vec<ChatSample>,
    gaps: Histogram<u64>,
    first_failure: Option<String>,
}

/// Everything that the exchanges of a run share.
struct Course {
    target: ChatTarget,
    plan: ChatPlan,
    start: Instant,
    records: Mutex<Records>,
}

/// How long an exchange may take, beyond the deadline, to end.
const SLACK: Duration = Duration::from_secs(5);

impl Traffic {
    fn tokens(&self, index: usize) -> Tokens {
        match self {
            Traffic::Steady(_, tokens) => *tokens,
            Traffic::Recorded(requests) => {
                let all = requests.all();
                all.get(index)
                    .or(all.last())
                    .map_or(Tokens { prompt: 1, output: 1 }, |request| request.tokens)
            }
        }
    }

    fn times(&self, seed: u64) -> Result<Box<dyn Iterator<Item = Duration> + '_>, Error> {
        Ok(match self {
            Traffic::Steady(arrivals, _) => Box::new(arrivals.schedule(seed)?),
            Traffic::Recorded(requests) => Box::new(requests.all().iter().map(Timed::at)),
        })
    }
}

impl ChatTarget {
    /// Runs a plan. Call it from a thread that may block.
    pub fn open(&self, plan: &ChatPlan) -> Result<ChatRun, Error> {
        let last = plan.length.unwrap_or(Duration::MAX);
        let most = plan.requests.min(MOST_SAMPLES);
        let schedule = plan.traffic.times(plan.seed)?.take(most).take_while(|at| *at < last);
        let driver = Driver::new(plan.in_flight, self.runtime.clone());
        let start = Instant::now() + Duration::from_millis(10);
        let records = Records { samples: Vec::new(), gaps: histogram(), first_failure: None };
        let records = Mutex::new(records);
        let course = Arc::new(Course { target: self.clone(), plan: plan.clone(), start, records });
        let (mut all, mut offered, mut dropped, mut end) = (0, 0, 0, Duration::ZERO);
        driver.run(start, schedule, |due, permit| {
            let counted = due.intended >= start + plan.warm_up;
            if self.live.is_stopped() {
                return Continue::Stop;
            }
            all += 1;
            offered += usize::from(counted);
            end = due.intended - start;
            match permit {
                Some(permit) => {
                    let course = course.clone();
                    permit.spawn(async move { course.exchange(due, counted).await });
                }
                None => {
                    dropped += usize::from(counted);
                    course.skip(due, counted);
                }
            }
            Continue::Next
        });
        if let (Traffic::Steady(..), Some(length)) = (&plan.traffic, plan.length)
            && all < most
            && !self.live.is_stopped()
        {
            // The time after the last request belongs to the run.
            end = length;
        }
        // A stopped run keeps the answers that it has.
        driver.wait(plan.deadline + SLACK, || self.live.is_stopped());
        let mut records = course.records.lock();
        let mut samples = std::mem::take(&mut records.samples);
        samples.sort_by_key(|sample| sample.intended);
        let measured = self.live.take();
        let answered = samples.iter().filter(|sample| sample.is_answered());
        let ended = answered.map(|sample| sample.intended + sample.latency).max().unwrap_or_default();
        let length = end.saturating_sub(plan.warm_up);
        Ok(ChatRun {
            firsts: Run {
                samples: measured.samples,
                offered,
                dropped,
                tally: measured.tally,
                length,
                failures: Failures::default(),
            },
            samples,
            gaps: records.gaps.clone(),
            first_failure: records.first_failure.take(),
            busy: length.max(ended.saturating_sub(plan.warm_up)),
            repeated: self.wire.repeated(),
        })
    }
}

impl Course {
    async fn exchange(&self, due: Due, counted: bool) {
        let ChatTarget { wire, maker, .. } = &self.target;
        let meant = self.plan.traffic.tokens(due.index);
        let mut seen = Seen::default();
        let deadline = tokio::time::Instant::from_std(due.intended + self.plan.deadline);
        let body = maker.body(due.index, meant);
        let followed = tokio::time::timeout_at(deadline, seen.follow(&**wire, maker.api, body)).await;
        let failure = match followed {
            Ok(outcome) => outcome.err(),
            Err(_) => {
                let message = format!("no whole answer within {:?}", self.plan.deadline);
                Some(ChatFailure { kind: FailureKind::Timeout, message })
            }
        };
        let took = due.intended.elapsed();
        let since = |at: Instant| at.saturating_duration_since(due.intended);
        let tokens = seen.tokens(meant);
        // No answer is never a quick one, and half an answer is none.
        let late = took.max(self.plan.deadline);
        let sample = ChatSample {
            intended: due.intended - self.start,
            lag: due.lag,
            first: if failure.is_some() { late } else { seen.first.map_or(late, since) },
            latency: if failure.is_some() { late } else { took },
            per_token: if failure.is_some() { None } else { seen.per_token(tokens.output) },
            prompt_tokens: tokens.prompt,
            output_tokens: tokens.output,
            failure: failure.as_ref().map(|failure| failure.kind),
            dropped: false,
        };
        self.record(sample, counted, &seen.gaps, failure);
    }

    /// Records that a request was not sent.
    fn skip(&self, due: Due, counted: bool) {
        let Tokens { prompt, .. } = self.plan.traffic.tokens(due.index);
        let late = self.plan.deadline;
        let sample = ChatSample {
            intended: due.intended - self.start,
            lag: due.lag,
            first: late,
            latency: late,
            per_token: None,
            prompt_tokens: prompt,
            output_tokens: 0,
            failure: None,
            dropped: true,
        };
        self.record(sample, counted, &[], None);
    }

    fn record(&self, sample: ChatSample, counted: bool, gaps: &[Duration], failure: Option<ChatFailure>) {
        let outcome = match (&failure, sample.dropped) {
            (Some(_), _) => Outcome::Failed,
            (None, true) => Outcome::Dropped,
            (None, false) => Outcome::Exact,
        };
        let ChatSample { intended, first, lag, .. } = sample;
        let first = Sample { intended, latency: first, lag, outcome };
        if counted {
            let mut records = self.records.lock();
            records.samples.push(sample);
            gaps.iter().for_each(|gap| records.gaps.saturating_record(nanos(*gap)));
            if let Some(ChatFailure { kind, message }) = failure {
                records.first_failure.get_or_insert_with(|| format!("{kind}: {message}"));
            }
        }
        self.target.live.record(Ended { sample: first, counted, rows: Vec::new(), failure: None });
    }
}
