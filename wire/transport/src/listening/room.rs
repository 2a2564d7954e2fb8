//! Places of connections, and the choice of the connection to evict when all places are taken.
//!
//! A connection holds a place from before its first byte until it ends. When a new connection finds no place, the room
//! samples some, and closes the one that has been without a request for longest, never one with a request in progress. So
//! silent clients, and clients that never read, delay others for a while and cannot keep them out, however many they are.
//!
//! A response whose size is unknown may be a stream that lasts for days, so its request is in progress until its last part.
//! Any other response is one piece: its request is in progress until the response exists. How long clients may take to
//! read is bounded by `unread`.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::{Share, Unread, UnreadAnswer};

/// Connections that one choice samples, each time another part of the room: a flood must not cost a walk through thousands.
const SAMPLE: usize = 64;

/// Time until a new connection that found none to evict tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// Shortest time between two log lines about a full room.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Time during which a connection is not evicted: a TLS handshake and a request take some round trips. Without it, clients that
/// reconnect immediately would interrupt every handshake.
const BEGUN: Duration = Duration::from_secs(1);

/// Places of connections.
#[derive(Debug)]
pub struct Room {
    most: usize,
    /// The setting or constant that limits it, for the log.
    bound: &'static str,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    connections: Slab<Arc<Activity>>,
    /// Start of the next sample.
    next: usize,
    warned: Option<Instant>,
}

/// A connection with its place; dropping the last clone gives the place back. The station adds it to the extensions of a
/// request, and a request that takes over the connection keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Place>);

#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    key: usize,
    activity: Arc<Activity>,
}

impl Connection {
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.0.activity
    }

    /// What a request keeps that takes over the connection: its place, and a request in progress, so that it is not evicted.
    pub(crate) fn taken_over(self) -> (Self, Running) {
        let running = Running::new(self.activity().clone());
        (self, running)
    }
}

impl Room {
    /// A room with so many places. `bound` names their limit, for operators.
    pub fn new(most: usize, bound: &'static str) -> Arc<Self> {
        Arc::new(Self { most, bound, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place as soon as one is free. If none is, evicts a connection that has been without a request for `spare`.
    pub(super) async fn enter(self: &Arc<Self>, spare: Duration) -> Connection {
        let activity = Arc::new(Activity::new());
        loop {
            let freed = self.freed.notified();
            if let Some(connection) = self.try_enter(&activity) {
                return connection;
            }
            if self.may_warn() {
                let (connections, bound) = (self.most, self.bound);
                tracing::warn!(
                    code = %parm_protocol::StableCode::ConnectionLimit,
                    connections,
                    bound,
                    "connection limit reached: closing the connection that has been without a request for longest"
                );
            }
            self.make(spare);
            // Connections that close are noticed immediately, connections that become idle at the next attempt.
            let _ = tokio::time::timeout(AGAIN, freed).await;
        }
    }

    fn try_enter(self: &Arc<Self>, activity: &Arc<Activity>) -> Option<Connection> {
        let mut taken = self.taken.lock();
        if taken.connections.len() >= self.most {
            return None;
        }
        let key = taken.connections.insert(activity.clone());
        Some(Connection(Arc::new(Place { room: self.clone(), key, activity: activity.clone() })))
    }

    /// Whether the log may get a line about missing places: clients without a key must not fill it.
    pub(super) fn may_warn(&self) -> bool {
        let (now, mut taken) = (Instant::now(), self.taken.lock());
        let due = taken.warned.is_none_or(|last| now.duration_since(last) >= WARN_EVERY);
        if due {
            taken.warned = Some(now);
        }
        due
    }

    /// Tells a connection to close, if one can be evicted.
    pub(super) fn make(&self, spare: Duration) {
        let mut taken = self.taken.lock();
        let count = taken.connections.len();
        let from = if taken.next < taken.connections.capacity() { taken.next } else { 0 };
        let around =
            taken.connections.iter().skip_while(|(key, _)| *key < from).chain(taken.connections.iter());
        let sample: Vec<_> = around.take(SAMPLE.min(count)).collect();
        let next = sample.last().map_or(0, |(key, _)| key + 1);
        let quiet = sample.into_iter().filter_map(|(_, activity)| Some((activity.quiet(spare)?, activity)));
        let chosen = quiet.max_by_key(|(quiet, _)| *quiet).map(|(_, activity)| activity.clone());
        taken.next = next;
        drop(taken);
        if let Some(activity) = chosen {
            activity.evict();
        }
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().connections.len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.taken.lock().connections.remove(self.key);
        self.room.freed.notify_one();
    }
}

/// The requests of a connection and the time since the last.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    /// Milliseconds after opening when a request began or ended; before the first, when the TLS handshake ended.
    last_ms: AtomicU64,
    has_asked: AtomicBool,
    /// Requests in progress.
    running: AtomicUsize,
    /// Whether the connection must make room for another.
    evicting: AtomicBool,
    evicted: Notify,
    multiplexed: AtomicBool,
    /// Whether the connection must end with its next response.
    old: AtomicBool,
    /// The client's end of the connection, once it is ready for requests.
    client: OnceLock<ClientEnd>,
    pub(crate) unread: Arc<Unread>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientEnd {
    /// Its address; `None` for a process of this machine at a Unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) secured: bool,
}

impl Activity {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            last_ms: AtomicU64::new(0),
            has_asked: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            evicting: AtomicBool::new(false),
            evicted: Notify::new(),
            multiplexed: AtomicBool::new(false),
            old: AtomicBool::new(false),
            client: OnceLock::new(),
            unread: Arc::default(),
        }
    }

    pub(super) fn note_version(&self, version: Version) {
        self.multiplexed.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// Marks the connection as too old. Returns whether it can be closed gracefully at once; over HTTP/1.1 only the
    /// next response can announce it, because a request may be on its way.
    pub(super) fn grow_old(&self) -> bool {
        self.old.store(true, Ordering::Relaxed);
        self.multiplexed.load(Ordering::Relaxed)
    }

    /// Whether the next response must be the last.
    pub(super) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress, only unread responses.
    pub(super) fn only_answers(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
    }

    /// Records the end of the TLS handshake: the timeout for heads starts now.
    pub(super) fn welcomed(&self, client: ClientEnd) {
        self.note();
        let _ = self.client.set(client);
    }

    pub(crate) fn client(&self) -> ClientEnd {
        self.client.get().copied().unwrap_or_default()
    }

    fn note(&self) {
        let age = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(age, Ordering::Relaxed);
    }

    /// Time since a request began or ended.
    fn idle(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(last)
    }

    /// How long the connection may stay in its present state; zero if it has timed out.
    pub(super) fn patience(&self, head: Duration, idle: Duration) -> Duration {
        if !self.only_answers() {
            return idle;
        }
        let limit = if self.has_asked.load(Ordering::Relaxed) { idle } else { head };
        limit.saturating_sub(self.idle())
    }

    /// How long it has had no request in progress, if it can be evicted. A connection that has sent requests must have been
    /// idle for `spare`.
    fn quiet(&self, spare: Duration) -> Option<Duration> {
        // A connection that was told to close makes room soon.
        if !self.only_answers() || self.evicting.load(Ordering::Relaxed) {
            return None;
        }
        let least = if self.has_asked.load(Ordering::Relaxed) { spare.max(BEGUN) } else { BEGUN };
        Some(self.idle()).filter(|idle| *idle >= least)
    }

    fn evict(&self) {
        self.evicting.store(true, Ordering::Relaxed);
        self.evicted.notify_one();
    }

    /// Waits for an eviction. A connection that became busy since it was chosen stays.
    pub(super) async fn evicted(&self) {
        loop {
            self.evicted.notified().await;
            self.evicting.store(false, Ordering::Relaxed);
            if self.quiet(Duration::ZERO).is_some() {
                return;
            }
        }
    }
}

/// Counts a request while it is in progress, however it ends.
#[derive(Debug)]
pub(crate) struct Running(Arc<Activity>);

impl Running {
    pub(crate) fn new(activity: Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::Relaxed);
        activity.has_asked.store(true, Ordering::Relaxed);
        activity.note();
        Self(activity)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.note();
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response, whose bytes are unread until the client has read them.
#[derive(Debug)]
pub struct Tracked<B> {
    body: B,
    unit: Unit,
}

/// The unit to which the bytes of a body belong.
#[derive(Debug)]
enum Unit {
    /// One response, made at once: one timeout covers all of it.
    Whole(Arc<UnreadAnswer>),
    /// One message of a stream each. The call is in progress until its last message, or until the client goes away.
    Messages(Running),
}

impl<B> Tracked<B> {
    /// A response in one piece, with its share of the byte budget.
    pub(super) fn whole(body: B, activity: &Activity, share: Option<Arc<Share>>) -> Self {
        Self { body, unit: Unit::Whole(activity.unread.answer(share)) }
    }

    pub(super) fn messages(body: B, running: Running) -> Self {
        Self { body, unit: Unit::Messages(running) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Tracked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let hold = |bytes| match &self.unit {
            Unit::Whole(answer) => answer.part(bytes),
            Unit::Messages(running) => running.0.unread.answer(None).part(bytes),
        };
        frame.map_ok(|frame| frame.map_data(hold))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
