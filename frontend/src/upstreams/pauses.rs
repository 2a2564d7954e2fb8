//! The pauses in the answers of a route, from which its patience with a silent server follows.
//!
//! *Problem.* An answer that has begun cannot move to another server. If its server falls silent, the client waits for the
//! end of the route's timeout, also on a route whose tokens come every 30 ms.
//!
//! *Choice.* The longest pause of each answer is remembered. An answer ends after a pause 20 times as long as the longest
//! of the last 4,096 answers, but not before 10 s and not after the route's `stall_ms`. A pause that ended its answer
//! counts itself, so a route whose servers do pause gets more patience at once.
//!
//! *Rejected.* A quantile of pauses: an answer that is cut is lost, so one rare long pause must count.
//!
//! *Cold start.* The first 256 answers have the route's `stall_ms`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use parm_protocol::{Error, RestOfBody};
use tokio::time::Instant;

/// Patience in relation to the longest pause.
const TIMES: u32 = 20;
/// The least patience: a server that loads or swaps may be silent for seconds.
const LEAST: Duration = Duration::from_secs(10);
/// Answers before the first conclusion.
const FEWEST: u32 = 256;
/// Answers of a generation; the longest pauses of two are kept.
const GENERATION: u32 = 4096;

/// The longest pauses of a route's answers.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    /// Answers of this generation.
    answers: u32,
    longest: Duration,
    /// That of the generation before, if there was one.
    before: Option<Duration>,
}

impl Pauses {
    /// The longest pause for a new answer, at most `most`.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        let known = self.0.lock();
        if known.before.is_none() && known.answers < FEWEST {
            return most;
        }
        let longest = known.longest.max(known.before.unwrap_or_default());
        longest.saturating_mul(TIMES).max(LEAST).min(most)
    }

    /// Learns the longest pause of an answer.
    fn learn(&self, longest: Duration) {
        let mut known = self.0.lock();
        known.longest = known.longest.max(longest);
        known.answers += 1;
        if known.answers == GENERATION {
            *known = Generations { before: Some(known.longest), ..Generations::default() };
        }
    }
}

/// The rest of an answer, whose pauses are learned.
pub(crate) struct Paced {
    rest: RestOfBody,
    pauses: Arc<Pauses>,
    longest: Duration,
    /// When it began to wait for its server. A client that does not read does not wait.
    waits: Option<Instant>,
}

impl Paced {
    pub(crate) fn new(rest: RestOfBody, pauses: Arc<Pauses>) -> Self {
        Self { rest, pauses, longest: Duration::ZERO, waits: None }
    }

    fn end_pause(&mut self) {
        if let Some(since) = self.waits.take() {
            self.longest = self.longest.max(since.elapsed());
        }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = self.rest.as_mut().poll_frame(cx);
        if polled.is_pending() {
            self.waits.get_or_insert_with(Instant::now);
        }
        let frame = ready!(polled);
        self.end_pause();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.size_hint()
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        // A client that went away may have done so because of the pause.
        self.end_pause();
        self.pauses.learn(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn one_long_pause_counts_for_a_generation() {
        let pauses = Pauses::default();
        (0..FEWEST).for_each(|_| pauses.learn(Duration::from_millis(50)));
        pauses.learn(LEAST);
        for _ in 0..GENERATION {
            assert_eq!(pauses.patience(MINUTE), MINUTE);
            pauses.learn(Duration::from_millis(50));
        }
        (0..GENERATION).for_each(|_| pauses.learn(Duration::from_millis(50)));
        assert_eq!(pauses.patience(MINUTE), LEAST);
    }
}
