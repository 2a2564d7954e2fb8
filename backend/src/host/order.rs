//! Loading and unloading by request, off the runtime's threads, and once for all concurrent requests.
//!
//! Embedded instances share one host, so a frontend that loads a model on each of its instances sends as many requests
//! as there are instances. A request is already fulfilled if another load began after it was received and has ended:
//! the files were read after the request. A load that began earlier may have read older files, and does not count.
//!
//! Requests wait for their turn without a thread: behind a load that never ends they would otherwise use up the runtime's
//! threads for blocking work, which decompress bodies and read files too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use parm_protocol::Error as Refusal;

use super::Host;
use crate::Error;

/// Allows one load, unload or reload at a time.
pub(super) struct Orders {
    /// Number of loads by request that have begun.
    begun: AtomicU64,
    /// The turn of requests, and the places of those that wait for it.
    turn: Arc<tokio::sync::Mutex<()>>,
    places: tokio::sync::Semaphore,
    /// The last operation, if it was a load by request.
    last: Mutex<Option<Load>>,
}

/// Most requests that wait.
const MOST: usize = 1024;

impl Default for Orders {
    fn default() -> Self {
        let places = tokio::sync::Semaphore::new(MOST);
        Self { begun: AtomicU64::new(0), turn: Arc::default(), places, last: Mutex::default() }
    }
}

/// A load by request.
pub(super) struct Load {
    number: u64,
    name: String,
    outcome: Result<(), Error>,
}

impl Orders {
    /// The number of loads that began before a request.
    pub(super) fn ask(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Loads a model, unless a load began and ended since it was requested.
    pub(super) fn load(
        &self,
        name: &str,
        asked: u64,
        load: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut last = self.last.lock();
        if let Some(last) = last.as_ref().filter(|last| last.name == name && last.number > asked) {
            return last.outcome.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let outcome = load();
        *last = Some(Load { number, name: name.into(), outcome: outcome.clone() });
        outcome
    }

    /// Excludes loads until the guard is dropped. The operation under the guard may undo the last load.
    pub(super) fn alone(&self) -> MutexGuard<'_, Option<Load>> {
        let mut last = self.last.lock();
        *last = None;
        last
    }
}

impl Host {
    /// Loads, or reloads, a model by name.
    pub(crate) async fn load_model(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let (host, name, asked) = (self.clone(), name.to_owned(), self.orders.ask());
        self.off_the_runtime(move || host.load_now(&name, asked)).await
    }

    /// Takes a model out of service.
    pub(crate) async fn unload_model(self: &Arc<Self>, name: &str) -> Result<(), Refusal> {
        let (host, name) = (self.clone(), name.to_owned());
        self.off_the_runtime(move || host.unload_now(&name)).await
    }

    /// Loading blocks for seconds, which the runtime's threads must not.
    async fn off_the_runtime(
        &self,
        work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let full = |_| Refusal::Overloaded {
            message: format!("{MOST} loads and unloads wait: check the log for a model that hangs"),
            retry_after: Duration::from_secs(10),
        };
        let place = self.orders.places.try_acquire().map_err(full)?;
        let turn = self.orders.turn.clone().lock_owned().await;
        drop(place);
        let outcome = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        let lost = |error: tokio::task::JoinError| Refusal::Internal { message: error.to_string() };
        outcome.await.map_err(lost)?.map_err(Refusal::from)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use prometheus::Registry;

    use super::*;
    use crate::host::Layout;
    use crate::{Config, Metrics};

    #[tokio::test]
    async fn load_that_never_ends_does_not_use_up_all_threads() {
        let metrics = Metrics::worker(&Registry::new()).unwrap();
        let host = Host::start(Config::default(), metrics, Layout::Shared).unwrap();
        let (hangs, is_hanging) = std::sync::mpsc::sync_channel(0);
        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = host.clone();
        std::thread::spawn(move || {
            let _alone = busy.orders.alone();
            hangs.send(()).unwrap();
            let _ = released.recv();
        });
        is_hanging.recv().unwrap();
        let load = || {
            let host = host.clone();
            tokio::spawn(async move { host.load_model("m").await })
        };
        // As many as the runtime has threads for blocking work.
        let waiting: Vec<_> = (0..600).map(|_| load()).collect();
        tokio::task::yield_now().await;
        let free = tokio::time::timeout(Duration::from_secs(30), tokio::task::spawn_blocking(|| ()));
        free.await.expect("it waits for a thread").unwrap();
        drop(release);
        for load in waiting {
            assert!(matches!(load.await.unwrap(), Err(Refusal::UnknownModel { .. })));
        }
    }

    #[test]
    fn load_serves_requests_received_before_it_began() {
        let orders = Orders::default();
        let loads = Cell::new(0);
        let load = |name: &str, asked| {
            orders.load(name, asked, || {
                loads.set(loads.get() + 1);
                if name == "broken" { Err(Error::FaultsDisabled) } else { Ok(()) }
            })
        };
        let (first, second) = (orders.ask(), orders.ask());
        assert_eq!((load("m", first), loads.get()), (Ok(()), 1));
        assert_eq!((load("m", second), loads.get()), (Ok(()), 1), "the request precedes the load");
        assert_eq!((load("m", orders.ask()), loads.get()), (Ok(()), 2), "the request follows the load");
        assert_eq!((load("n", second), loads.get()), (Ok(()), 3), "another model");
        let both = orders.ask();
        assert_eq!((load("broken", both), loads.get()), (Err(Error::FaultsDisabled), 4));
        assert_eq!((load("broken", both), loads.get()), (Err(Error::FaultsDisabled), 4));
        let asked = orders.ask();
        load("m", asked).unwrap();
        drop(orders.alone());
        assert_eq!((load("m", asked), loads.get()), (Ok(()), 6), "the model may have been unloaded since");
    }
}
