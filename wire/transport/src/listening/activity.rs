//! The activity of a connection, for the clock that closes idle ones.
//!
//! An answer of gRPC's may be a stream that says little and goes on for days, so such a call is in progress until its last
//! message is told. Any other answer is one piece: its request counts until it is there. How long clients may take over what
//! they are told is another question, and `unread` has the answer. A connection whose client does not take its answer can make
//! room for another one: otherwise clients that ask and do not read would hold every place for as long as an answer may take.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    /// Whether the first byte is there.
    begun: AtomicBool,
    /// Milliseconds after opening when TLS was agreed upon, where it is spoken: heads are waited for from then on.
    welcomed_ms: AtomicU64,
    /// Requests in progress.
    running: AtomicUsize,
    /// Those of them that only watch: they need no key, never end, and are no reason to keep a place that others want.
    watching: AtomicUsize,
    /// Milliseconds after opening when the last request began or ended; 0 before the first.
    last_ms: AtomicU64,
    /// The connection is asked to make room for another.
    evicting: AtomicBool,
    evicted: Notify,
    /// Whether requests came by HTTP/2.
    multiplexed: AtomicBool,
    /// Whether the connection is to end with its next answer.
    old: AtomicBool,
    /// Answers that are not taken yet.
    pub(crate) unread: Arc<Unread>,
}

/// For how long a connection has had no request in progress. The least useful connection is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quiet {
    /// No request is in progress, and an answer has not been taken for so long.
    Untaken(Duration),
    /// Since a request ended.
    Idle(Duration),
    /// Since it was opened: it has sent something, and no whole request.
    Begun(Duration),
    /// Since it was opened: it has sent nothing.
    Silent(Duration),
}

/// Time in which a connection that has sent nothing does not make room. The first bytes of a client follow its connection without
/// a pause, so they are there when the connection is accepted.
const SILENT: Duration = Duration::from_millis(100);

/// Time in which a client takes an answer that fits into the kernel's buffers, on a slow link too. A client that takes longer has
/// stopped reading, or has an answer that is larger.
const UNTAKEN: Duration = Duration::from_secs(2);

/// Time in which a connection that has sent something does not make room: for a handshake of TLS and a request, some round trips.
/// Without it, clients that connect again as soon as they are cut off would cut off every handshake.
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
            unread,
        }
    }

    /// Notes by which version of HTTP a request came.
    pub(crate) fn note_version(&self, version: Version) {
        self.multiplexed.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// The connection has lived long enough. Returns whether its client can be told so at once; to one of HTTP/1.1 only the
    /// next answer can say it, for a request may be on its way.
    pub(super) fn grow_old(&self) -> bool {
        self.old.store(true, Ordering::Relaxed);
        self.multiplexed.load(Ordering::Relaxed)
    }

    /// Whether the next answer should be the last.
    pub(crate) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress: whatever there is are answers.
    pub(super) fn only_answers(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The first byte is there.
    pub(super) fn begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// TLS is agreed upon, where it is spoken: from here on a head is waited for.
    pub(super) fn welcomed(&self) {
        self.welcomed_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    fn note(&self) {
        self.last_ms.store(self.age_ms().max(1), Ordering::Relaxed);
    }

    /// How long the connection may go on like this; zero when its time is over.
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

    /// For how long it has had no request in progress but those that watch, if it can make room for another connection. One that
    /// has sent requests must have been idle for `spare`.
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

    /// Whether it is to make room already.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting.load(Ordering::Relaxed)
    }

    /// Asks the connection to make room for another.
    pub(super) fn evict(&self) {
        self.evicting.store(true, Ordering::Relaxed);
        self.evicted.notify_one();
    }

    /// Waits until the connection is to make room. One that became busy since it was chosen stays.
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

    /// The same, for a request that only watches from here on.
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

/// The body of an answer, whose bytes are unread until the client has taken them.
#[derive(Debug)]
pub struct Told<B> {
    body: B,
    told: Part,
}

/// What the bytes of a body are part of.
#[derive(Debug)]
enum Part {
    /// One answer, made at once: its time is counted for all of it.
    Whole(Arc<UnreadAnswer>),
    /// A stream's message each. The call is in progress until the last is told, or nobody listens any more.
    Messages { unread: Arc<Unread>, _running: Running },
}

impl<B> Told<B> {
    /// An answer in one piece, with what it holds of the budget.
    pub(crate) fn whole(body: B, activity: &Activity, share: Option<Arc<Share>>) -> Self {
        Self { body, told: Part::Whole(activity.unread.answer(share)) }
    }

    /// An answer of as many messages as there may come.
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
