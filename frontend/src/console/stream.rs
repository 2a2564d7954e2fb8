//! Stream of frames to watchers, with one frame per second for all of them and none without watchers.
//!
//! Problem: an open page must not slow down the frontend, however many are open and however slowly they read.
//!
//! Choice: one task makes a frame per second while there are watchers, and sends all of them the same bytes. Each
//! watcher has a short buffer. If it is full, frames are left out and counted, so a slow reader loses frames and delays
//! no other. Other lines must arrive: if one does not fit, the stream ends, and a watcher that reconnects receives the
//! full state again. The stream also ends for a watcher that took no line for thirty seconds, because places are
//! limited. Frames of the last minutes are kept, without their instances, for later watchers.
//!
//! Rejected: frames for each watcher at its own time, because each page would take the dispatcher's lock; a broadcast
//! channel, because it drops other lines as well as frames.
//!
//! Cold start: the first frame after a time without watchers covers the time since the first watcher came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use parm_transport::keys::Caller;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{MissedTickBehavior, interval};

use super::frame::Frame;
use super::hello::hello;
use super::moment::Moment;
use super::names;
use crate::error::Error;
use crate::serve::Frontend;

/// Interval between frames.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which frames are kept.
pub(super) const HISTORY: Duration = Duration::from_secs(300);

/// Maximum watchers.
const WATCHERS: usize = 8;

/// Maximum lines that wait for a watcher.
const BUFFER: usize = 8;

/// The stream of a frontend.
#[derive(Default)]
pub(crate) struct Stream(Mutex<Hub>);

#[derive(Default)]
struct Hub {
    watching: Vec<Watching>,
    /// Time and line of each kept frame.
    past: VecDeque<(u64, Bytes)>,
    /// Moment of the last frame; `None` without watchers.
    last: Option<Moment>,
    models: Bytes,
    instances: Bytes,
}

/// Frames in a row during which a watcher may take no line: thirty seconds. It has then lost more than twenty frames;
/// the machine sleeps or the page is gone, and another watcher may need the place.
const SILENT: u32 = 30;

/// The stream's side of a watcher.
struct Watching {
    lines: mpsc::Sender<Bytes>,
    /// Lines that it took so far.
    taken: Arc<AtomicU64>,
    /// Value of `taken` at the last frame, and the number of frames since it changed.
    seen: u64,
    silent: u32,
    /// Frames that it missed since the last notice.
    dropped: u64,
    /// Number of its next event.
    event: u64,
}

/// The watcher's side of the stream. Dropping it ends it.
pub(crate) struct Watcher {
    replay: VecDeque<Bytes>,
    lines: mpsc::Receiver<Bytes>,
    taken: Arc<AtomicU64>,
}

impl Watcher {
    /// The next lines; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let line = match self.replay.pop_front() {
            Some(line) => Some(line),
            None => self.lines.recv().await,
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        line
    }
}

impl Frontend {
    /// Adds a watcher: it receives everything kept that is later than `since`, then live lines.
    pub(crate) fn watch(&self, caller: &Caller, since: u64) -> Result<Watcher, Error> {
        let mut hub = self.core.stream.0.lock();
        hub.watching.retain(|watching| !watching.lines.is_closed());
        if hub.watching.len() >= WATCHERS {
            return Err(Error::TooManyWatchers { limit: WATCHERS });
        }
        let (events, event) = self.core.driver.journal.since(0);
        let mut replay = VecDeque::from([
            line("hello", &hello(self, caller)),
            line("models", &names::models(self)),
            line("instances", &names::instances(self)),
            line("events", &events),
        ]);
        replay.extend(hub.past.iter().filter(|(at, _)| *at > since).map(|(_, past)| past.clone()));
        let (sender, lines) = mpsc::channel(BUFFER);
        let taken = Arc::<AtomicU64>::default();
        let watching =
            Watching { lines: sender, taken: taken.clone(), seen: 0, silent: 0, dropped: 0, event };
        hub.watching.push(watching);
        if hub.last.is_none() {
            self.core.driver.watch_groups(true);
            hub.last = Some(Moment::now(self));
            drop(hub);
            let frontend = self.clone();
            self.spawn("frame stream", async move { frontend.stream().await });
        }
        Ok(Watcher { replay, lines, taken })
    }

    /// Makes frames while there are watchers.
    async fn stream(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            ticks.tick().await;
            let mut hub = self.core.stream.0.lock();
            hub.watching.retain(|watching| !watching.lines.is_closed());
            // Streams end with the frontend; otherwise shutdown would wait for them.
            if hub.watching.is_empty() || self.core.activity.is_draining() {
                hub.watching.clear();
                hub.last = None;
                self.core.driver.watch_groups(false);
                return;
            }
            hub.tick(&self);
        }
    }
}

impl Hub {
    fn tick(&mut self, frontend: &Frontend) {
        let now = Moment::now(frontend);
        let Some(last) = self.last.replace(now) else { return };
        let Some(now) = &self.last else { return };
        let mut frame = Frame::between(&last, now, frontend.core.config.instances.slots.get());
        let told = line("frame", &frame);
        frame.instances = None;
        self.keep(frame.at, line("past", &frame));

        let (models, instances) =
            (line("models", &names::models(frontend)), line("instances", &names::instances(frontend)));
        let mut news = Vec::new();
        if models != self.models {
            news.push(models.clone());
        }
        if instances != self.instances {
            news.push(instances.clone());
        }
        (self.models, self.instances) = (models, instances);
        let journal = &frontend.core.driver.journal;
        self.watching.retain_mut(|watching| {
            if watching.is_silent() {
                return false;
            }
            let (events, next) = journal.since(watching.event);
            watching.event = next;
            let events = (!events.is_empty()).then(|| line("events", &events));
            // If a line other than a frame does not fit, the stream ends.
            let all = news.iter().cloned().chain(events).all(|line| watching.lines.try_send(line).is_ok());
            all && watching.give(&told)
        });
    }

    fn keep(&mut self, at: u64, past: Bytes) {
        self.past.push_back((at, past));
        let oldest = at.saturating_sub(HISTORY.as_millis() as u64);
        while self.past.front().is_some_and(|(at, _)| *at <= oldest) {
            self.past.pop_front();
        }
    }
}

impl Watching {
    /// Whether the watcher took no line for too long. Called once per frame.
    fn is_silent(&mut self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        self.silent = if taken == self.seen { self.silent + 1 } else { 0 };
        self.seen = taken;
        self.silent >= SILENT
    }

    /// Sends a frame, or leaves it out. False if the watcher is gone.
    fn give(&mut self, frame: &Bytes) -> bool {
        let room = self.lines.capacity();
        if room < 1 + usize::from(self.dropped > 0) {
            self.dropped += 1;
            return !self.lines.is_closed();
        }
        if self.dropped > 0 {
            let told = line("dropped", &std::mem::take(&mut self.dropped));
            if self.lines.try_send(told).is_err() {
                return false;
            }
        }
        !matches!(self.lines.try_send(frame.clone()), Err(TrySendError::Closed(_)))
    }
}

/// A line of the stream, with its kind as the key.
fn line(kind: &str, value: &impl Serialize) -> Bytes {
    // Numbers, names and lists always serialise.
    let value = serde_json::to_string(value).unwrap_or_default();
    format!("{{\"{kind}\":{value}}}\n").into()
}
