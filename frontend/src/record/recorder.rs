//! Sends events to listeners. Without a listener an event costs one atomic read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use parm_dispatcher::Time;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::error::Error;
use crate::serve::{Instance, Pool, Role};

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

/// A listener's receiving end.
pub(super) struct Heard {
    pub(super) notes: mpsc::Receiver<Note>,
    /// Events lost since the last read.
    pub(super) dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Records an event if there are listeners.
    pub(crate) fn note(&self, note: impl FnOnce() -> Note) {
        if self.heard.load(Ordering::Relaxed) {
            self.tell(&note());
        }
    }

    /// Adds a listener until its receiving end is dropped.
    pub(super) fn listen(&self, buffer: usize) -> Result<Heard, Error> {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| !listener.notes.is_closed());
        if listeners.len() >= LISTENERS {
            return Err(Error::TooManyRecordings { limit: LISTENERS });
        }
        let (notes, heard) = mpsc::channel(buffer);
        let dropped = Arc::new(AtomicU64::new(0));
        listeners.push(Listener { notes, dropped: dropped.clone() });
        self.heard.store(true, Ordering::Relaxed);
        Ok(Heard { notes: heard, dropped })
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
