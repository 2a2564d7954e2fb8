//! The open loop: starts each request at its time, whatever the earlier ones do, with a bound on unanswered requests.
//!
//! [`Driver::run`] calls back at every time of a schedule with a [`Permit`], on which the caller spawns its exchange, or
//! without one when too many requests are unanswered. The bound keeps a dead server from filling this machine's memory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::pacer::{self, Due};

/// Starts requests on a schedule.
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

    /// Calls `send` at each time after `start`, until the schedule ends or `send` stops it. Blocks the calling thread.
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
mod tests {
    use super::*;

    #[test]
    fn permits_are_withheld_while_too_many_are_unanswered() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let driver = Driver::new(2, runtime.handle().clone());
        let never = Arc::new(Semaphore::new(0));
        let mut given = Vec::new();
        driver.run(Instant::now(), [Duration::ZERO; 4], |due, permit| {
            given.push((due.index, permit.is_some()));
            let never = never.clone();
            if let Some(permit) = permit {
                permit.spawn(async move { drop(never.acquire().await) });
            }
            ControlFlow::Continue(())
        });
        assert_eq!(given, [(0, true), (1, true), (2, false), (3, false)]);
        driver.wait(Duration::from_secs(3600), || true);
        never.close();
        driver.wait(Duration::from_secs(3600), || false);
        assert_eq!(driver.room.available_permits(), 2, "an exchange that ended still counts");
    }
}
