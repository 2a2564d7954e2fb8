//! Reports of the jobs that this frontend holds, for the neighbours that follow it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use parm_dispatch::Event;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::neighbourhood::Neighbourhood;
use super::report::LoadReport;
use crate::error::Error;
use crate::serve::Core;

/// Minimum interval between two lines: a shorter one costs both ends and gains nothing.
const GAP: Duration = Duration::from_millis(1);

/// Interval after which a line is sent without a change.
pub(super) const BEAT: Duration = Duration::from_millis(100);

/// Maximum followers.
const FOLLOWERS: usize = 64;

/// Reports sent to neighbours and received from them.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Locked before the dispatcher is.
    pub(super) known: Mutex<Neighbourhood>,
    followers: AtomicUsize,
    changed: Notify,
}

impl Exchange {
    /// Creates the exchange of a frontend whose name derives from this number.
    pub(crate) fn by(number: u64) -> Self {
        // Frontends of one process may have the same start number.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { known: Mutex::new(Neighbourhood::of(format!("{number:016x}-{count}"))), ..Self::default() }
    }

    /// Wakes followers, as the held jobs may have changed.
    pub(crate) fn may_have_changed(&self) {
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Changes the reports and forwards the events to the dispatcher in order.
    pub(crate) fn know(
        &self,
        change: impl FnOnce(&mut Neighbourhood) -> Vec<Event>,
        mut tell: impl FnMut(Event),
    ) {
        let mut known = self.known.lock();
        change(&mut known).into_iter().for_each(&mut tell);
    }

    /// Number of neighbours that are followed.
    pub(crate) fn neighbours(&self) -> usize {
        self.known.lock().neighbours()
    }
}

/// A follower's stream. Dropping it ends it.
pub(crate) struct ReportStream {
    core: Arc<Core>,
    own: String,
    /// Last report; `None` before the first line.
    last: Option<BTreeMap<String, u16>>,
    next: Instant,
}

impl ReportStream {
    /// Adds a follower.
    pub(crate) fn begin(core: Arc<Core>) -> Result<Self, Error> {
        let told = &core.driver.neighbours;
        if told.followers.fetch_add(1, Ordering::Relaxed) >= FOLLOWERS {
            told.followers.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyFollowers { limit: FOLLOWERS });
        }
        let own = told.known.lock().own().to_owned();
        Ok(Self { own, last: None, next: Instant::now(), core })
    }

    /// The next line; `None` once this frontend shuts down and holds no jobs.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let core = self.core.clone();
        let told = &core.driver.neighbours;
        sleep_until(self.next).await;
        let beat = Instant::now() + BEAT;
        loop {
            let changed = told.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let looked = Instant::now();
            let held = core.driver.held_without_tokens();
            let news = self.news(&held);
            let over = Instant::now() >= beat;
            if (over || self.last.is_none()) && core.activity.is_draining() && held.is_empty() {
                return None;
            }
            if !news.is_empty() || self.last.is_none() || over {
                self.last = Some(held);
                self.next = Instant::now() + GAP;
                return Some(line(&self.own, news));
            }
            // The loop checks whether a change came or the wait timed out.
            let _ = timeout(beat.saturating_duration_since(Instant::now()), changed).await;
            // Limits the rate of checks to that of lines.
            sleep_until(looked + GAP).await;
        }
    }

    /// Servers whose number of jobs changed since the last line.
    fn news(&self, held: &BTreeMap<String, u16>) -> BTreeMap<String, u16> {
        let Some(last) = &self.last else { return held.clone() };
        let gone = last.keys().filter(|address| !held.contains_key(*address)).map(|address| (address, &0));
        let others = held.iter().filter(|(address, jobs)| last.get(*address) != Some(*jobs));
        gone.chain(others).map(|(address, jobs)| (address.clone(), *jobs)).collect()
    }
}

impl Drop for ReportStream {
    fn drop(&mut self) {
        self.core.driver.neighbours.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn line(own: &str, holds: BTreeMap<String, u16>) -> Bytes {
    let line = LoadReport { frontend: own.to_owned(), holds };
    // Names and numbers always serialise.
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
