//! The activity of a connection, for the clock that closes idle connections.
//!
//! A gRPC response may be a stream that lasts for days, so such a call is in progress until its last message. Any other
//! response is one piece: its request is in progress until the response exists. How long clients may take to read is
//! bounded by `unread`. A connection whose client does not read its response can make room for another one: otherwise
//! clients that never read would hold every place for the whole answer timeout.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::Share;
use crate::unread::{Unread, UnreadAnswer};

/// The requests of a connection and the time since the last.
#[derive(Debug)]
pub struct Activity {
    opened: Instant,
    /// Whether the first byte arrived.
    begun: AtomicBool,
    /// Milliseconds after opening at which the TLS handshake ended, if there is one: the timeout for heads starts then.
    welcomed_ms: AtomicU64,
    /// Requests in progress.
    running: AtomicUsize,
    /// Requests in progress that only watch. They need no key and never end, so they do not protect the connection from
    /// eviction.
    watching: AtomicUsize,
    /// Milliseconds after opening when the last request began or ended; 0 before the first.
    last_ms: AtomicU64,
    /// Whether the connection must make room for another.
    evicting: AtomicBool,
    evicted: Notify,
    /// Whether requests arrive over HTTP/2.
    multiplexed: AtomicBool,
    /// Whether the connection must end with its next response.
    old: AtomicBool,
    /// The client's end of the connection, once it is ready for requests.
    client: OnceLock<ClientEnd>,
    /// Responses that the client has not read yet.
    pub(crate) unread: Arc<Unread>,
}

/// The client's end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientEnd {
    /// Its address; `None` for a process of this machine at a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// Whether the connection is TLS.
    pub(crate) secured: bool,
}

/// How long a connection has had no request in progress. The least useful connection is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quiet {
    /// No request is in progress, and a response has been unread for this long.
    Untaken(Duration),
    /// Since a request ended.
    Idle(Duration),
    /// Since it was opened: it has sent something, but no whole request.
    Begun(Duration),
    /// Since it was opened: it has sent nothing.
    Silent(Duration),
}

/// Time during which a connection that has sent nothing is not evicted. A client's first bytes follow its connect
/// without a pause, so they are there when the connection is accepted.
const SILENT: Duration = Duration::from_millis(100);

/// Time in which a client reads a response that fits into the kernel's buffers, on a slow link too. A client that takes
/// longer has stopped reading, or its response is larger.
const UNTAKEN: Duration = Duration::from_secs(2);

/// Time during which a connection that has sent something is not evicted: a TLS handshake and a request take some round
/// trips. Without it, clients that reconnect immediately would interrupt every handshake.
const BEGUN: Duration = Duration::from_secs(1);

impl Activity {
    pub(crate) fn new() -> Self {
        let unread = Arc::new(Unread::default());
        Self {
            opened: Instant::now(),
            begun: AtomicBool::new(false),
            welcomed_ms: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            watching: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            evicting: AtomicBool::new(false),
            evicted: Notify::new(),
            multiplexed: AtomicBool::new(false),
            old: AtomicBool::new(false),
            client: OnceLock::new(),
            unread,
        }
    }

    /// Records the HTTP version of a request.
    pub(crate) fn note_version(&self, version: Version) {
        self.multiplexed.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// Marks the connection as too old. Returns whether it can be closed gracefully at once; over HTTP/1.1 only the
    /// next response can announce it, because a request may be on its way.
    pub(super) fn grow_old(&self) -> bool {
        self.old.store(true, Ordering::Relaxed);
        self.multiplexed.load(Ordering::Relaxed)
    }

    /// Whether the next response must be the last.
    pub(crate) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress, only unread responses.
    pub(super) fn only_answers(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records the first byte.
    pub(super) fn begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Records the end of the TLS handshake: the timeout for heads starts now.
    pub(super) fn welcomed(&self, client: ClientEnd) {
        self.welcomed_ms.store(self.age_ms(), Ordering::Relaxed);
        let _ = self.client.set(client);
    }

    /// The client's end of the connection.
    pub(crate) fn client(&self) -> ClientEnd {
        self.client.get().copied().unwrap_or_default()
    }

    fn note(&self) {
        self.last_ms.store(self.age_ms().max(1), Ordering::Relaxed);
    }

    /// How long the connection may stay in its present state; zero if it has timed out.
    pub(super) fn patience(&self, head: Duration, idle: Duration) -> Duration {
        if self.running.load(Ordering::Relaxed) > 0 {
            return idle;
        }
        let (from, limit) = match self.last_ms.load(Ordering::Relaxed) {
            0 => (self.welcomed_ms.load(Ordering::Relaxed), head),
            last => (last, idle),
        };
        (Duration::from_millis(from) + limit).saturating_sub(self.opened.elapsed())
    }

    /// How long it has had no request in progress other than watches, if it can be evicted. A connection that has sent
    /// requests must have been idle for `spare`.
    pub(super) fn quiet(&self, spare: Duration) -> Option<Quiet> {
        if self.running.load(Ordering::Relaxed) > self.watching.load(Ordering::Relaxed) {
            return None;
        }
        let open = self.opened.elapsed();
        match self.last_ms.load(Ordering::Relaxed) {
            0 if !self.begun.load(Ordering::Relaxed) => (open >= SILENT).then_some(Quiet::Silent(open)),
            0 => (open >= BEGUN).then_some(Quiet::Begun(open)),
            last => {
                let idle = open.saturating_sub(Duration::from_millis(last));
                let quiet = match self.unread.oldest() {
                    Some(untaken) => Some(Quiet::Untaken(untaken)).filter(|_| untaken >= UNTAKEN),
                    None => Some(Quiet::Idle(idle)),
                };
                quiet.filter(|_| idle >= spare)
            }
        }
    }

    /// Whether it must make room already.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting.load(Ordering::Relaxed)
    }

    /// Tells the connection to make room for another.
    pub(super) fn evict(&self) {
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
pub(crate) struct Running {
    activity: Arc<Activity>,
    watches: bool,
}

impl Running {
    pub(crate) fn new(activity: Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::Relaxed);
        activity.note();
        Self { activity, watches: false }
    }

    /// Counts the request as a watch from now on.
    pub(crate) fn watching(mut self) -> Self {
        if !std::mem::replace(&mut self.watches, true) {
            self.activity.note();
            self.activity.watching.fetch_add(1, Ordering::Relaxed);
        }
        self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.activity.note();
        self.activity.running.fetch_sub(1, Ordering::Relaxed);
        if self.watches {
            self.activity.watching.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The body of a response, whose bytes are unread until the client has read them.
#[derive(Debug)]
pub struct Told<B> {
    body: B,
    told: Part,
}

/// The unit to which the bytes of a body belong.
#[derive(Debug)]
enum Part {
    /// One response, made at once: one timeout covers all of it.
    Whole(Arc<UnreadAnswer>),
    /// One message of a stream each. The call is in progress until its last message, or until the client goes away.
    Messages { unread: Arc<Unread>, _running: Running },
}

impl<B> Told<B> {
    /// A response in one piece, with its share of the byte budget.
    pub(crate) fn whole(body: B, activity: &Activity, share: Option<Arc<Share>>) -> Self {
        Self { body, told: Part::Whole(activity.unread.answer(share)) }
    }

    /// A response of any number of messages.
    pub(crate) fn messages(body: B, running: Running) -> Self {
        let unread = running.activity.unread.clone();
        Self { body, told: Part::Messages { unread, _running: running } }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Told<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let hold = |bytes| match &self.told {
            Part::Whole(answer) => answer.part(bytes),
            Part::Messages { unread, .. } => unread.answer(None).part(bytes),
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
