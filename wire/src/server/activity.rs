//! What a connection has been doing, for the clock that closes what is idle.
//!
//! An answer of gRPC's may be a stream that says little and goes on for days, so a call is in progress until its last
//! message is told. An answer over HTTP is one piece: it counts until it is there, and a client that is slower to take
//! it than the idle time-out is not waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// The requests of a connection and the time since the last.
pub(super) struct Activity {
    opened: Instant,
    /// Requests in progress.
    running: AtomicUsize,
    /// Milliseconds after opening when the last request began or ended; 0 before the first.
    last_ms: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { opened: Instant::now(), running: AtomicUsize::new(0), last_ms: AtomicU64::new(0) }
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

/// A body of an answer that is in progress until it is told, or nobody listens any more.
pub(super) struct Held<B> {
    body: B,
    _running: Running,
}

impl<B> Held<B> {
    pub(super) fn new(body: B, running: Running) -> Self {
        Self { body, _running: running }
    }
}

impl<B: Body + Unpin> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
