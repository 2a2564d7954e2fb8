//! An open-loop run: requests are sent on a schedule, however slow the earlier ones are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parm_workload::arrivals::Arrivals;

use super::exchange::Exchange;
use super::{Driver, Due, MOST_SAMPLES, Run, Target, Work};
use crate::Error;
use crate::pacer::Continue;

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

/// How long the client may take, beyond the deadline, to report a timeout.
const SLACK: Duration = Duration::from_secs(5);
/// Who stops a run waits for its answers only if they have a shorter deadline than this.
const LONG: Duration = Duration::from_secs(60);

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
                return Continue::Stop;
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
                    exchange.drop(self);
                }
            }
            Continue::Next
        });
        let end = match &plan.arrivals {
            _ if self.live.is_stopped() => start.elapsed().min(plan.length),
            Arrivals::Trace { seconds } => plan.length.min(last_of(seconds)),
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
}

fn last_of(seconds: &[f64]) -> Duration {
    seconds.last().and_then(|last| Duration::try_from_secs_f64(*last).ok()).unwrap_or_default()
}
