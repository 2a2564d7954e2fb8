//! What this frontend tells of itself, to whoever follows it.

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
use super::tidings::Tidings;
use crate::error::Error;
use crate::serve::Core;

/// Between two lines: what is told sooner is heard no sooner, and costs both ends.
const GAP: Duration = Duration::from_millis(1);

/// After so long a line is told though nothing changed.
pub(super) const BEAT: Duration = Duration::from_millis(100);

/// Followers at a time.
const FOLLOWERS: usize = 64;

/// What neighbours are told, and what they told.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Locked before the dispatcher is.
    pub(super) known: Mutex<Neighbourhood>,
    followers: AtomicUsize,
    changed: Notify,
}

impl Exchange {
    /// For a frontend that gives itself a name of this number.
    pub(crate) fn by(number: u64) -> Self {
        // Frontends of one process may have begun with the same.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { known: Mutex::new(Neighbourhood::of(format!("{number:016x}-{count}"))), ..Self::default() }
    }

    /// What is held may have changed.
    pub(crate) fn may_have_changed(&self) {
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// Changes what is known and tells the dispatcher of it, in the order in which it came.
    pub(crate) fn know(
        &self,
        change: impl FnOnce(&mut Neighbourhood) -> Vec<Event>,
        mut tell: impl FnMut(Event),
    ) {
        let mut known = self.known.lock();
        change(&mut known).into_iter().for_each(&mut tell);
    }

    /// How many neighbours are heard.
    pub(crate) fn neighbours(&self) -> usize {
        self.known.lock().neighbours()
    }
}

/// A follower's end. Dropping it ends it.
pub(crate) struct Telling {
    core: Arc<Core>,
    own: String,
    /// What was told last; none before the first line.
    last: Option<BTreeMap<String, u16>>,
    next: Instant,
}

impl Telling {
    /// Tells somebody else from now on.
    pub(crate) fn begin(core: Arc<Core>) -> Result<Self, Error> {
        let told = &core.driver.neighbours;
        if told.followers.fetch_add(1, Ordering::Relaxed) >= FOLLOWERS {
            told.followers.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyFollowers { limit: FOLLOWERS });
        }
        let own = told.known.lock().own().to_owned();
        Ok(Self { own, last: None, next: Instant::now(), core })
    }

    /// The next line; none once this frontend ends and holds nothing.
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
            // Whether it came or the time is over is seen above.
            let _ = timeout(beat.saturating_duration_since(Instant::now()), changed).await;
            // What was no news is looked at no more often than what was.
            sleep_until(looked + GAP).await;
        }
    }

    /// What changed since the last line.
    fn news(&self, held: &BTreeMap<String, u16>) -> BTreeMap<String, u16> {
        let Some(last) = &self.last else { return held.clone() };
        let gone = last.keys().filter(|address| !held.contains_key(*address)).map(|address| (address, &0));
        let others = held.iter().filter(|(address, jobs)| last.get(*address) != Some(*jobs));
        gone.chain(others).map(|(address, jobs)| (address.clone(), *jobs)).collect()
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.core.driver.neighbours.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn line(own: &str, holds: BTreeMap<String, u16>) -> Bytes {
    let line = Tidings { frontend: own.to_owned(), holds };
    // Names and numbers: there is nothing in it that has no text.
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    text.into()
}
