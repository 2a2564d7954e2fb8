//! What a connection has been doing, for the clock that closes what is idle.
//!
//! An answer of gRPC's may be a stream that says little and goes on for days, so such a call is in progress until its last
//! message is told. Any other answer is one piece: its request counts until it is there. How long clients may take over what
//! they are told is another question, and `unread` has the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::budget::Share;
use crate::unread::{Unread, UnreadAnswer};

/// The requests of a connection and the time since the last.
pub(super) struct Activity {
    opened: Instant,
    /// Requests in progress.
    running: AtomicUsize,
    /// Milliseconds after opening when the last request began or ended; 0 before the first.
    last_ms: AtomicU64,
    /// Whether requests came by HTTP/2.
    multiplexed: AtomicBool,
    /// Whether the connection is to end with its next answer.
    old: AtomicBool,
    /// Answers that are not taken yet.
    pub(super) unread: Arc<Unread>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let unread = Arc::new(Unread::default());
        Self {
            opened: Instant::now(),
            running: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            old: AtomicBool::new(false),
            unread,
        }
    }

    /// Notes by which version of HTTP a request came.
    pub(super) fn note_version(&self, version: Version) {
        self.multiplexed.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// The connection has lived long enough. Returns whether its client can be told so at once; to one of HTTP/1.1 only the
    /// next answer can say it, for a request may be on its way.
    pub(super) fn grow_old(&self) -> bool {
        self.old.store(true, Ordering::Relaxed);
        self.multiplexed.load(Ordering::Relaxed)
    }

    /// Whether the next answer should be the last.
    pub(super) fn is_old(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Whether no request is in progress: whatever there is are answers.
    pub(super) fn only_answers(&self) -> bool {
        self.running.load(Ordering::Relaxed) == 0
    }

    fn note(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now.max(1), Ordering::Relaxed);
    }

    /// How long the connection may go on like this; zero when its time is over.
    pub(super) fn patience(&self, head: Duration, idle: Duration) -> Duration {
        if self.running.load(Ordering::Relaxed) > 0 {
            return idle;
        }
        match self.last_ms.load(Ordering::Relaxed) {
            0 => head.saturating_sub(self.opened.elapsed()),
            last => (Duration::from_millis(last) + idle).saturating_sub(self.opened.elapsed()),
        }
    }
}

/// Counts a request while it is in progress, however it ends.
pub(super) struct Running(Arc<Activity>);

impl Running {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        activity.running.fetch_add(1, Ordering::Relaxed);
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

/// The body of an answer, whose bytes are unread until the client has taken them.
pub(super) struct Told<B> {
    body: B,
    told: Part,
}

/// What the bytes of a body are part of.
enum Part {
    /// One answer, made at once: its time is counted for all of it.
    Whole(Arc<UnreadAnswer>),
    /// A stream's message each. The call is in progress until the last is told, or nobody listens any more.
    Messages { unread: Arc<Unread>, _running: Running },
}

impl<B> Told<B> {
    /// An answer in one piece, with what it holds of the budget.
    pub(super) fn whole(body: B, activity: &Activity, share: Option<Arc<Share>>) -> Self {
        Self { body, told: Part::Whole(activity.unread.answer(share)) }
    }

    /// An answer of as many messages as there may come.
    pub(super) fn messages(body: B, running: Running) -> Self {
        let unread = running.0.unread.clone();
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
