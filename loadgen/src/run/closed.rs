//! A closed-loop run: a fixed number of concurrent requests, each followed by the next when it is answered.
//!
//! This measures a server's throughput (offline) or the time of one answer (single-stream, multi-stream). It does not
//! measure a tail under load, because a slow answer delays the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::{MOST_SAMPLES, Run, Target};

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

/// Pause between a failure and the stream's next request, so that a server that rejects requests is not overloaded.
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
