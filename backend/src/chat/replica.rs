//! The thread that runs iterations, and the places of requests in its batch.
//!
//! A request watches a count of its tokens instead of receiving them through a queue: a client that reads slowly then costs
//! no memory, and the words of a token are known from its number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use parm_workload::chat::{Advance, Batch, Costs, Tokens};
use prometheus::{IntCounter, IntGauge, Registry};
use tokio::sync::watch;

use super::INSTANCE;
use crate::metrics::{refused, registered};
use crate::{Error, Faults, pause};

/// The replica. Dropping it ends the thread after its iteration, and the streams with it.
pub(super) struct Replica {
    floor: Arc<Floor>,
}

/// State that the thread and the requests share.
struct Floor {
    current: Mutex<Current>,
    arrived: Condvar,
    metrics: ChatMetrics,
}

struct Current {
    batch: Batch,
    watched: HashMap<u64, watch::Sender<Progress>>,
    next: u64,
    closed: bool,
}

/// An iteration to run.
struct Work {
    /// Its time without faults.
    took: Duration,
    /// Whether the replica was idle before it.
    waited: bool,
}

/// Lateness that the next iteration makes up for. A longer one is a pause of the machine, which its replicas share.
const LATEST: Duration = Duration::from_millis(50);

/// Most requests that wait for a stream: an experiment that reaches it is overloaded.
pub(super) const QUEUE: usize = 4096;

/// The progress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Tokens that it got.
    pub(super) tokens: u32,
    /// Whether it has ended.
    pub(super) done: bool,
}

/// A request's place in the batch, which is free once this is dropped.
pub(super) struct Stay {
    floor: Arc<Floor>,
    number: u64,
    progress: watch::Receiver<Progress>,
}

struct ChatMetrics {
    running: IntGauge,
    waiting: IntGauge,
    output_tokens: IntCounter,
}

impl ChatMetrics {
    fn register(registry: &Registry) -> Result<Self, Error> {
        let gauge = |name: &str, what: &str| registered(registry, IntGauge::new(name, what)).map_err(refused);
        let tokens = "Tokens that the emulated chat server gave";
        let tokens = IntCounter::new("parm_chat_output_tokens_total", tokens);
        let waiting = "Requests that wait for a stream of the emulated chat server";
        Ok(Self {
            running: gauge("parm_chat_running", "Streams of the emulated chat server")?,
            waiting: gauge("parm_chat_waiting", waiting)?,
            output_tokens: registered(registry, tokens).map_err(refused)?,
        })
    }
}

impl Replica {
    pub(super) fn start(
        costs: Costs,
        faults: Option<Arc<Faults>>,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let current = Current { batch: Batch::new(costs), watched: HashMap::new(), next: 0, closed: false };
        let metrics = ChatMetrics::register(registry)?;
        let floor = Arc::new(Floor { current: Mutex::new(current), arrived: Condvar::new(), metrics });
        let running = floor.clone();
        std::thread::Builder::new()
            .name("chat".into())
            .spawn(move || {
                pause::make_precise();
                let mut due = None;
                while let Some(Work { took, waited }) = running.begin() {
                    // On a busy machine a thread wakes up late, and the next iteration must not begin later for it.
                    let now = Instant::now();
                    let in_time = |due: &Instant| !waited && now.saturating_duration_since(*due) < LATEST;
                    let began = due.filter(in_time).unwrap_or(now);
                    due = Some(match &faults {
                        Some(faults) => faults.iterate(INSTANCE, began, took),
                        None => {
                            pause::until(began + took);
                            began + took
                        }
                    });
                    running.end();
                }
            })
            .map_err(|error| Error::Thread { message: error.to_string() })?;
        Ok(Self { floor })
    }

    /// Adds a request, unless the queue is full.
    pub(super) fn enter(&self, tokens: Tokens) -> Option<Stay> {
        let mut current = self.floor.current.lock();
        if current.batch.waiting() >= QUEUE {
            return None;
        }
        let number = current.next;
        current.next += 1;
        let (sender, progress) = watch::channel(Progress::default());
        current.watched.insert(number, sender);
        current.batch.arrive(number, tokens);
        self.floor.show(&current.batch);
        drop(current);
        self.floor.arrived.notify_one();
        Some(Stay { floor: self.floor.clone(), number, progress })
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let mut current = self.floor.current.lock();
        current.closed = true;
        current.watched.clear();
        drop(current);
        self.floor.arrived.notify_one();
    }
}

impl Floor {
    /// Waits for work and starts an iteration; `None` at the end.
    fn begin(&self) -> Option<Work> {
        let mut current = self.current.lock();
        let mut waited = false;
        loop {
            if current.closed {
                return None;
            }
            if let Some(nanos) = current.batch.begin() {
                self.show(&current.batch);
                return Some(Work { took: pause::millis(nanos / 1e6), waited });
            }
            waited = true;
            self.arrived.wait(&mut current);
        }
    }

    /// Ends the iteration and reports the tokens.
    fn end(&self) {
        let mut advances = Vec::new();
        let mut current = self.current.lock();
        current.batch.end(&mut advances);
        for Advance { id, done } in advances {
            self.metrics.output_tokens.inc();
            if let Some(sender) = current.watched.get(&id) {
                sender.send_modify(|progress| {
                    *progress = Progress { tokens: progress.tokens + 1, done };
                });
            }
            if done {
                current.watched.remove(&id);
            }
        }
        self.show(&current.batch);
    }

    fn show(&self, batch: &Batch) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.running.set(count(batch.running()));
        self.metrics.waiting.set(count(batch.waiting()));
    }
}

impl Stay {
    /// Waits until the request has more tokens than these or has ended. `None` if the replica is gone.
    pub(super) async fn beyond(&mut self, tokens: u32) -> Option<Progress> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if progress.tokens > tokens || progress.done {
                return Some(progress);
            }
            self.progress.changed().await.ok()?;
        }
    }

    /// Waits until the request has ended. `None` if the replica is gone.
    pub(super) async fn ends(&mut self) -> Option<()> {
        self.progress.wait_for(|progress| progress.done).await.ok().map(drop)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut current = self.floor.current.lock();
        current.watched.remove(&self.number);
        if current.batch.leave(self.number) {
            self.floor.show(&current.batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_rejects_until_a_request_leaves() {
        // The thread takes requests into its first iteration only, which never ends here.
        let costs = Costs { base_ms: 60_000.0, streams: 1, ..Costs::default() };
        let replica = Replica::start(costs, None, &Registry::new()).unwrap();
        let tokens = Tokens { prompt: 1, output: 1 };
        let mut stays: Vec<Stay> = std::iter::from_fn(|| replica.enter(tokens)).take(2 * QUEUE).collect();
        assert!([QUEUE, QUEUE + 1].contains(&stays.len()), "{} requests", stays.len());
        stays.pop();
        assert!(replica.enter(tokens).is_some());
    }
}
