//! Converts events to lines: times relative to the start, numbers for models and instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use parm_dispatcher::Time;
use parm_settings::recording::{FORMAT, Line, RecordedJob, RecordedQuery, RecordedRole};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::error::Error;
use crate::serve::{Frontend, Instance, InstanceId, Pool, PoolId, Role};

/// Maximum events in one chunk.
const CHUNK: usize = 1024;

/// A recording in progress. Dropping it ends it.
pub struct Recording {
    frontend: Frontend,
    heard: mpsc::Receiver<Note>,
    /// Events lost since the last read.
    dropped: Arc<AtomicU64>,
    notes: Vec<Note>,
    began: Time,
    header: Option<Line>,
    models: Vec<PoolId>,
    instances: Vec<InstanceId>,
}

impl Frontend {
    /// Starts recording.
    pub fn record(&self) -> Result<Recording, Error> {
        let buffer = self.core.config.recording.buffer.get();
        let (heard, dropped) = self.core.driver.recorder.listen(buffer)?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Recording {
            began: self.core.driver.now(),
            header: Some(Line::Recording { format: FORMAT, unix_ms: unix.as_millis() as u64 }),
            frontend: self.clone(),
            heard,
            dropped,
            notes: Vec::with_capacity(CHUNK),
            models: Vec::new(),
            instances: Vec::new(),
        })
    }
}

impl Recording {
    /// Waits for events and appends their lines to `text`. Cancel safe: no event is lost.
    pub async fn next(&mut self, text: &mut Vec<u8>) {
        self.begin(text);
        self.heard.recv_many(&mut self.notes, CHUNK).await;
        self.write(text);
    }

    /// Appends the remaining events and the last line.
    pub fn end(&mut self, text: &mut Vec<u8>) {
        self.begin(text);
        while let Ok(note) = self.heard.try_recv() {
            self.notes.push(note);
        }
        self.write(text);
        let at_us = self.micros(self.frontend.core.driver.now());
        Line::End { at_us }.write(text);
    }

    /// Whether the frontend is shutting down, so that recordings should end.
    pub(crate) fn is_over(&self) -> bool {
        self.frontend.core.requests.is_closed()
    }

    fn begin(&mut self, text: &mut Vec<u8>) {
        if let Some(header) = self.header.take() {
            header.write(text);
        }
    }

    fn write(&mut self, text: &mut Vec<u8>) {
        for note in std::mem::take(&mut self.notes) {
            match note {
                Note::Query { at, pool, rows } => {
                    let query =
                        RecordedQuery { at_us: self.micros(at), model: self.model(&pool, text), rows };
                    Line::Query(query).write(text);
                }
                Note::Job { done, pool, instance } => {
                    let (model, instance) = (self.model(&pool, text), self.instance(&instance, text));
                    Line::Job(self.job(done, model, instance)).write(text);
                }
            }
        }
        let notes = self.dropped.swap(0, Ordering::Relaxed);
        if notes > 0 {
            Line::Dropped { notes }.write(text);
        }
    }

    fn job(&self, done: Done, model: u32, instance: u32) -> RecordedJob {
        RecordedJob {
            at_us: self.micros(done.started),
            took_us: done.ended.since(done.started).as_micros() as u64,
            model,
            instance,
            rows: done.rows,
            role: match done.role {
                Role::Deployed => RecordedRole::Deployed,
                Role::Copy => RecordedRole::Copy,
                Role::Parity => RecordedRole::Parity,
                Role::Backup => RecordedRole::Backup,
                Role::StandIn => RecordedRole::StandIn,
            },
            ok: done.ok,
            arrived_us: done.arrived.map(|arrived| self.micros(arrived)),
        }
    }

    /// Microseconds since the start; 0 for a job that began before it.
    fn micros(&self, at: Time) -> u64 {
        at.since(self.began).as_micros() as u64
    }

    fn model(&mut self, pool: &Arc<Pool>, text: &mut Vec<u8>) -> u32 {
        number(&mut self.models, pool.id, |number| {
            Line::Model { number, name: pool.model.name.clone(), version: pool.version.clone() }.write(text);
        })
    }

    fn instance(&mut self, instance: &Arc<Instance>, text: &mut Vec<u8>) -> u32 {
        number(&mut self.instances, instance.id, |number| {
            Line::Instance { number, name: instance.name.clone() }.write(text);
        })
    }
}

/// Returns the index of a name among those seen, and introduces a new one.
fn number<T: PartialEq>(seen: &mut Vec<T>, name: T, introduce: impl FnOnce(u32)) -> u32 {
    if let Some(place) = seen.iter().position(|other| *other == name) {
        return place as u32;
    }
    introduce(seen.len() as u32);
    seen.push(name);
    seen.len() as u32 - 1
}

/// Maximum listeners, as each adds work to every query.
const LISTENERS: usize = 4;

/// A recorded event.
#[derive(Clone)]
pub(crate) enum Note {
    /// A request arrived.
    Query { at: Time, pool: Arc<Pool>, rows: u32 },
    /// An instance finished a job.
    Job { done: Done, pool: Arc<Pool>, instance: Arc<Instance> },
}

/// Result of a job.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) started: Time,
    pub(crate) ended: Time,
    pub(crate) role: Role,
    pub(crate) rows: u32,
    pub(crate) ok: bool,
    /// When its first query arrived.
    pub(crate) arrived: Option<Time>,
}

/// Sends events to listeners.
#[derive(Default)]
pub(crate) struct Recorder {
    heard: AtomicBool,
    listeners: Mutex<Vec<Listener>>,
}

struct Listener {
    notes: mpsc::Sender<Note>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Records an event if there are listeners.
    pub(crate) fn note(&self, note: impl FnOnce() -> Note) {
        if self.heard.load(Ordering::Relaxed) {
            self.tell(&note());
        }
    }

    /// Adds a listener until its receiving end is dropped. Returns that, and the number of events that it loses.
    fn listen(&self, buffer: usize) -> Result<(mpsc::Receiver<Note>, Arc<AtomicU64>), Error> {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| !listener.notes.is_closed());
        if listeners.len() >= LISTENERS {
            return Err(Error::TooManyRecordings { limit: LISTENERS });
        }
        let (notes, heard) = mpsc::channel(buffer);
        let dropped = Arc::<AtomicU64>::default();
        listeners.push(Listener { notes, dropped: dropped.clone() });
        self.heard.store(true, Ordering::Relaxed);
        Ok((heard, dropped))
    }

    fn tell(&self, note: &Note) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| match listener.notes.try_send(note.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                listener.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        });
        self.heard.store(!listeners.is_empty(), Ordering::Relaxed);
    }
}
