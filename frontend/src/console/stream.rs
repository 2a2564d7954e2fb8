//! Frames for whoever watches: made once a second for all of them, and not at all for nobody.
//!
//! Problem: a page that is open must not cost what it watches over, however many are open and however slowly they read.
//!
//! Choice: one task makes a frame a second as long as there are watchers and hands all of them the same bytes. Each has a
//! short buffer; where it is full, frames are left out and their number is told, so one that reads slowly loses frames and
//! nobody waits for it. Lines that are no frames must not be missing: where one does not fit, the stream ends, and who comes
//! back is told everything anew. It ends too for a watcher that took no line for thirty seconds: places are few. Frames of the last minutes are kept without their instances, for those that come later.
//!
//! Rejected: frames for each watcher at its own time (every page costs the dispatcher's lock once more); a broadcast channel
//! (it forgets other lines as it does frames).
//!
//! Cold start: the first frame after a while without watchers is of the time since the first of them came.

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

/// Between two frames.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// For how long frames are kept.
pub(super) const HISTORY: Duration = Duration::from_secs(300);

/// Watchers at a time.
const WATCHERS: usize = 8;

/// Lines that wait for a watcher.
const BUFFER: usize = 8;

/// The stream of a frontend.
#[derive(Default)]
pub(crate) struct Stream(Mutex<Hub>);

#[derive(Default)]
struct Hub {
    watching: Vec<Watching>,
    /// When a frame was made, and its line.
    past: VecDeque<(u64, Bytes)>,
    /// The moment of the last frame; none while nobody watches.
    last: Option<Moment>,
    models: Bytes,
    instances: Bytes,
}

/// Frames in a row during which a watcher may take no line, thirty seconds. It has lost more than twenty of them then: a machine
/// that sleeps, or a page that is gone, and a place that another watcher needs.
const SILENT: u32 = 30;

/// A watcher, from here.
struct Watching {
    lines: mpsc::Sender<Bytes>,
    /// Lines that it took so far.
    taken: Arc<AtomicU64>,
    /// Lines that it had taken when the last frame was made, and the number of frames since it took one.
    seen: u64,
    silent: u32,
    /// Frames that it missed and was not told of.
    dropped: u64,
    /// The number of the next event for it.
    event: u64,
}

/// A watcher's end of the stream. Dropping it ends it.
pub(crate) struct Watcher {
    replay: VecDeque<Bytes>,
    lines: mpsc::Receiver<Bytes>,
    taken: Arc<AtomicU64>,
}

impl Watcher {
    /// The next lines; `None` where the stream ends.
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
    /// Watches from now on: all that is kept and later than `since`, and then what comes.
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
            self.spawn("the stream of frames", async move { frontend.stream().await });
        }
        Ok(Watcher { replay, lines, taken })
    }

    /// Makes frames as long as somebody watches.
    async fn stream(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            ticks.tick().await;
            let mut hub = self.core.stream.0.lock();
            hub.watching.retain(|watching| !watching.lines.is_closed());
            // Streams end with the frontend, or it would wait for them.
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
            // Where a line that is no frame does not fit, the stream ends.
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
    /// Whether it took no line for so long that its place is for another. Called once for each frame.
    fn is_silent(&mut self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        self.silent = if taken == self.seen { self.silent + 1 } else { 0 };
        self.seen = taken;
        self.silent >= SILENT
    }

    /// Gives a frame, or leaves it out. False where nobody watches any more.
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

/// A line of the stream, which says what it is.
fn line(kind: &str, value: &impl Serialize) -> Bytes {
    // Numbers, names and lists of them: there is nothing in it that has no text.
    let value = serde_json::to_string(value).unwrap_or_default();
    format!("{{\"{kind}\":{value}}}\n").into()
}
