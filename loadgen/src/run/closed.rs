//! One closed-loop run: so many requests at a time, the next as soon as one is answered.
//!
//! This measures what a server can do (offline) or how long one answer takes (single-stream, multi-stream). It says nothing
//! of a tail under load: a slow answer keeps the next request from being sent at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::{MOST_SAMPLES, Run, Target};

/// What a closed-loop run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Requests at a time.
    pub streams: usize,
    /// How long requests are sent.
    pub length: Duration,
    /// Requests sent this early are not counted.
    pub warm_up: Duration,
    /// How long each request may take.
    pub deadline: Duration,
}

/// Left between a failure and the stream's next request: a server that refuses is not hammered.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

impl Target {
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
                // A stream that panicked has sent less; its samples are there.
                let _ = stream.await;
            }
        });
        let length = start.elapsed().saturating_sub(plan.warm_up);
        let recorded = self.live.take();
        let (samples, tally, first_failure) = (recorded.samples, recorded.tally, recorded.first_failure);
        Run { offered: samples.len(), dropped: 0, samples, tally, length, first_failure }
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
