//! A request body with a timeout and a byte count.
//!
//! A client that dribbles bytes cannot hold a stream forever, and one that sends many cannot exceed the byte budget of
//! all requests. Bodies that are there already, as most small ones are, never start a timer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parm_protocol::Error;
use tokio::time::Sleep;

use super::single::WORDS;
use crate::budget::Share;

/// Bytes in front of each message: a flag and its length.
const PREFIX: usize = 5;

/// The error of a call whose messages have too many bytes together.
const TOO_MANY: &str = "the messages of this call have too many bytes together: make another call";

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that fails when it takes too long or is too large.
pub(super) struct Timely {
    body: Incoming,
    limit: Duration,
    share: Option<Arc<Share>>,
    /// Bytes that may arrive, and those that arrived.
    most: usize,
    came: usize,
    /// The error of a call that sends more.
    beyond: &'static str,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Timely {
    pub(super) fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, limit, share: None, most: usize::MAX, came: 0, beyond: WORDS, timer: None }
    }

    /// Counts the bytes from now on, which are one message of limited size.
    pub(super) fn counted(mut self, share: Arc<Share>, most: usize) -> Self {
        self.share = Some(share);
        self.most = most.saturating_add(PREFIX);
        self
    }

    /// Counts what comes from now on, which is any number of messages that have at most so many bytes together. All of them count
    /// until the call ends.
    pub(super) fn counted_together(self, share: Arc<Share>, most: usize) -> Self {
        Self { beyond: TOO_MANY, ..self.counted(share, most) }
    }

    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), Error> {
        let (Some(share), Some(data)) = (&self.share, frame.data_ref()) else { return Ok(()) };
        // A message that is too long is rejected as soon as its length arrived. Bytes beyond it are another message.
        let known = self.came >= PREFIX;
        self.came = self.came.saturating_add(data.len());
        if known && self.came > self.most {
            return Err(Error::Malformed { message: self.beyond.into() });
        }
        share.grow(data.len())
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| {
                let frame = frame?;
                self.count(&frame)?;
                Ok(frame)
            }));
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        let message = format!("the body did not arrive within {limit:?}: send it faster");
        Poll::Ready(Some(Err(Error::Malformed { message }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
