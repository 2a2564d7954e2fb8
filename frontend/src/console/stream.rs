//! Stream of frames to watchers, with one frame per second for all of them.
//!
//! Problem: an open page must not slow down the frontend, however many are open and however slowly they read.
//!
//! Choice: one task makes a frame per second while the admin API is on, and sends all watchers the same bytes. Each
//! watcher has a short buffer. If it is full, frames are left out and counted, so a slow reader loses frames and delays
//! no other. Other lines must arrive: if one does not fit, the stream ends, and a watcher that reconnects receives the
//! full state again. The stream also ends for a watcher that took no line for thirty seconds, because places are
//! limited. Frames of the last minutes are kept, without their instances, for later watchers: figures of the last minute
//! are true for a watcher that has just come.
//!
//! Rejected: frames for each watcher at its own time, because each page would take the dispatcher's lock; a broadcast
//! channel, because it drops other lines as well as frames; frames only with watchers, because the past then has
//! gaps, and a rate over it mixes seconds of now with those of an earlier visit.
//!
//! Cold start: the first frame covers the time since the admin API was made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use parm_protocol::{ModelIndex, Place};
use parm_settings::PolicyKind;
use parm_transport::keys::Caller;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{MissedTickBehavior, interval};

use super::frame::{COLUMNS, Frame, INSTANCES, Moment, STATES, reasons};
use super::sums::{FIRST_US, PER_OCTAVE, REJECTIONS, ROLES};
use super::{archive, journal};
use crate::discovery::MemberReading;
use crate::error::Error;
use crate::metrics::policy_name;
use crate::serve::reading::{Counters, Time};
use crate::serve::{Frontend, Outcome, Pool};

/// Interval between frames.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which frames are kept.
pub(super) const HISTORY: Duration = Duration::from_secs(300);

/// Maximum bytes of the kept frames: five minutes of about a hundred models. More models have a shorter past.
const PAST_BYTES: usize = 16 << 20;

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
    /// Their bytes.
    kept: usize,
    /// Moment of the last frame; `None` before the first and after the frontend's end.
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
    /// Adds a watcher: it receives everything kept that is later than `since`, then live lines. `faults` are those of the
    /// server's files.
    pub(crate) fn watch(&self, caller: &Caller, since: u64, faults: &Value) -> Result<Watcher, Error> {
        let mut hub = self.core.stream.0.lock();
        hub.watching.retain(|watching| !watching.lines.is_closed());
        if hub.watching.len() >= WATCHERS {
            return Err(Error::TooManyWatchers { limit: WATCHERS });
        }
        let (events, event) = self.core.driver.journal.since(0);
        let mut replay = VecDeque::from([
            line("hello", &hello(self, caller, faults)),
            line("models", &models(self)),
            line("instances", &instances(self)),
            line("events", &events),
        ]);
        replay.extend(hub.past.iter().filter(|(at, _)| *at > since).map(|(_, past)| past.clone()));
        let (sender, lines) = mpsc::channel(BUFFER);
        let taken = Arc::<AtomicU64>::default();
        let watching =
            Watching { lines: sender, taken: taken.clone(), seen: 0, silent: 0, dropped: 0, event };
        hub.watching.push(watching);
        self.make_frames(&mut hub);
        Ok(Watcher { replay, lines, taken })
    }

    /// Makes frames from now on, for the watchers that come.
    pub(crate) fn start_frames(&self) {
        self.make_frames(&mut self.core.stream.0.lock());
    }

    fn make_frames(&self, hub: &mut Hub) {
        if hub.last.is_some() {
            return;
        }
        hub.last = Some(Moment::now(self));
        // The task must not keep a frontend that its program has dropped.
        let (core, fleet) = (Arc::downgrade(&self.core), Arc::downgrade(&self.fleet));
        self.spawn("frame stream", async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.reset();
            loop {
                ticks.tick().await;
                let Some((core, fleet)) = core.upgrade().zip(fleet.upgrade()) else { return };
                if !(Self { core, fleet }).make_frame() {
                    return;
                }
            }
        });
    }

    /// Makes a frame. False at the end of the frontend, with which streams end: otherwise shutdown would wait for them.
    fn make_frame(&self) -> bool {
        let mut hub = self.core.stream.0.lock();
        hub.watching.retain(|watching| !watching.lines.is_closed());
        let over = self.core.requests.is_closed();
        if over {
            hub.watching.clear();
            hub.last = None;
        } else {
            hub.tick(self);
        }
        !over
    }
}

impl Hub {
    fn tick(&mut self, frontend: &Frontend) {
        let now = Moment::now(frontend);
        let Some(last) = self.last.replace(now) else { return };
        let Some(now) = &self.last else { return };
        let mut frame = Frame::between(&last, now, frontend.core.config.instances.slots.get());
        let told = (!self.watching.is_empty()).then(|| line("frame", &frame));
        frame.instances = None;
        self.keep(frame.at, line("past", &frame));
        let Some(told) = told else { return };

        let (models, instances) =
            (line("models", &models(frontend)), line("instances", &instances(frontend)));
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
        self.kept += past.len();
        self.past.push_back((at, past));
        let oldest = at.saturating_sub(HISTORY.as_millis() as u64);
        while let Some((at, past)) = self.past.front()
            && (*at <= oldest || self.kept > PAST_BYTES)
        {
            self.kept -= past.len();
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

/// Incremented with each incompatible change.
const FORMAT: u32 = 1;

/// A node is slow if its instances take this many times as long as the others.
pub(crate) const NODE_SLOW_FACTOR: f64 = 2.0;

/// The names of all outcomes of queries.
pub(crate) fn outcomes() -> impl Iterator<Item = &'static str> {
    Outcome::ALL.map(Outcome::name).into_iter().chain(["rejected", "failed"])
}

/// The first line for a caller, with the faults of the server's files.
pub(super) fn hello(frontend: &Frontend, caller: &Caller, faults: &Value) -> Value {
    let driver = &frontend.core.driver;
    json!({
        "format": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "at": driver.wall_ms(driver.now()),
        "started_at": driver.wall_ms(Time::ZERO),
        "role": caller.role(),
        "key": caller.name(),
        "faults": faults,
        "interval_ms": INTERVAL.as_millis() as u64,
        "history_s": HISTORY.as_secs(),
        "outcomes": outcomes().collect::<Vec<_>>(),
        "roles": ROLES,
        "counts": Counters::NAMES,
        "rejections": REJECTIONS,
        "budgets": ["retry", "hedge"],
        "columns": COLUMNS.map(|(name, _)| name),
        "states": STATES,
        "reasons": reasons(),
        "buckets": { "first_us": FIRST_US, "per_octave": PER_OCTAVE },
        "policies": PolicyKind::ALL.map(policy_name),
        "bounds": {
            "instances": INSTANCES,
            "events": journal::KEPT,
            "queries": archive::KEPT,
            "node_slow_factor": NODE_SLOW_FACTOR,
        },
    })
}

/// All models, as they are sent.
pub(super) fn models(frontend: &Frontend) -> Value {
    let core = &frontend.core;
    let (settings, revision) = (core.settings(), core.revision());
    let model = |pool: &Arc<Pool>| {
        let name = &pool.model.name;
        let policy = settings.of(name).policy;
        let standing = pool.standing();
        let failing = pool.failing();
        let in_force = standing.as_ref().map(|standing| &standing.in_force);
        let codes = in_force.iter().flat_map(|own| &own.coding.codes);
        // A stand-in needs none of its own.
        let problem = standing.as_ref().and_then(|standing| standing.not_coded.as_ref());
        json!({
            "m": pool.id.0,
            "name": name,
            "version": pool.version,
            "policy": policy,
            "in_force": in_force.map_or(policy, |own| own.policy),
            "revision": revision,
            "own": settings.models.contains_key(name),
            "codes": codes.map(|code| (code.k, code.parities)).collect::<Vec<_>>(),
            "stand_in": pool.codes().stand_in.as_ref().map(|own| &own.model.name),
            "problem": problem.filter(|_| core.serves_others(name).is_none()),
            "failing_reason": failing.as_ref().map(|trouble| trouble.reason),
            "failing": failing.as_ref().map(|trouble| &trouble.error),
        })
    };
    core.catalog.all().iter().map(model).collect()
}

/// All instances, as they are sent.
pub(super) fn instances(frontend: &Frontend) -> Value {
    let instance = |own: MemberReading| {
        let problem = own.problem();
        let MemberReading { member, view, .. } = own;
        let pools = view.instance.as_ref().map(|instance| instance.pools()).unwrap_or_default();
        let absent = view.instance.map(|instance| instance.absent()).unwrap_or_default();
        let broken = |model: ModelIndex| (!model.reason.is_empty()).then_some((model.name, model.reason));
        let Place { node, zone, .. } = member.place();
        json!({
            "number": member.number,
            "address": member.name,
            "source": member.source,
            "node": node,
            "zone": zone,
            "models": pools.iter().map(|pool| pool.id.0).collect::<Vec<_>>(),
            // Models that it has and does not serve, with the reasons.
            "absent": absent.into_iter().filter_map(broken).collect::<Vec<_>>(),
            "problem": problem,
        })
    };
    frontend.fleet.readings().into_iter().take(INSTANCES).map(instance).collect()
}
