//! The rest of an answer that has begun, read from its server as fast as the client reads it.
//!
//! The server can no longer be replaced: parts of two answers must not be joined. If it pauses for too long or breaks, a
//! stream of events ends with an event that says so, gRPC with a status, and any other body is cut.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use parm_protocol::{Broken, Error, ReaderHandle};
use tokio::time::{Instant, Sleep, sleep_until};

use super::content::BodyForm;
use crate::client::pool::Answer;

/// The error of a gRPC answer without a status.
pub(super) const NO_STATUS: &str = "its answer ended without a gRPC status";

/// The rest of an answer.
pub(super) struct AnswerRest {
    /// The answer, until it has ended.
    open: Option<Answer>,
    form: BodyForm,
    stall: Duration,
    patience: Pin<Box<Sleep>>,
    /// When the last data came.
    heard: Instant,
    /// Whether it is the client's answer: then its server alone gets the rest of the request.
    chosen: bool,
    has_trailers: bool,
    /// The error that cuts the body next.
    cut: Option<Error>,
    /// Told of the error that ends it early.
    broken: Broken,
}

/// Longest pause of a conversation, in which silence may be the client's.
const LONGEST_SILENCE: Duration = Duration::from_secs(3600);

impl AnswerRest {
    pub(super) fn new(open: Answer, form: BodyForm, stall: Duration, broken: Broken) -> Self {
        let heard = Instant::now();
        let patience = Box::pin(sleep_until(heard + stall));
        let (open, chosen, has_trailers, cut) = (Some(open), false, false, None);
        Self { open, form, stall, patience, heard, chosen, has_trailers, cut, broken }
    }

    /// When to lose patience with the server. As long as its client may send more, it perhaps waits for that.
    fn until(&self) -> Instant {
        match self.open.as_ref().and_then(Answer::asking).map(ReaderHandle::ended) {
            None => self.heard + self.stall,
            Some(Some(ended)) => self.heard.max(ended) + self.stall,
            Some(None) => self.heard + self.stall.max(LONGEST_SILENCE),
        }
    }

    /// Whether the server has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.patience.as_mut().poll(cx).is_ready() {
            let (now, until) = (Instant::now(), self.until());
            if now >= until {
                return Poll::Ready(());
            }
            // The client's end is not announced here.
            self.patience.as_mut().reset(until.min(now + self.stall));
        }
        Poll::Pending
    }

    /// Ends the answer early. A body is cut only once the connection has sent the part before: hyper drops that with an error, and
    /// a client that got nothing may send its request again.
    fn poll_failure(&mut self, message: &str, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let peer = self.open.take().map_or_else(String::new, |open| open.peer().to_owned());
        let error = Error::Transport { peer, message: message.to_owned() };
        tracing::debug!(%error, "an answer ended in its middle");
        self.broken.set(error.clone());
        Poll::Ready(Some(Ok(match self.form {
            BodyForm::Events => Frame::data(event(&error)),
            BodyForm::Messages => Frame::trailers(crate::server::trailers(&error)),
            BodyForm::Document | BodyForm::Bytes => {
                self.cut = Some(error);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })))
    }
}

/// An event with an error, in the form that clients of OpenAI's interface know.
fn event(error: &Error) -> Bytes {
    let error = serde_json::json!({
        "error": { "message": error.to_string(), "type": "upstream_error", "param": null, "code": "PARM-0020" }
    });
    format!("\n\nevent: error\ndata: {error}\n\n").into()
}

impl Body for AnswerRest {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let own = &mut *self;
        if let Some(error) = own.cut.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(open) = &mut own.open else { return Poll::Ready(None) };
        if !std::mem::replace(&mut own.chosen, true) {
            open.asking().iter().for_each(|asking| asking.choose());
        }
        // Clients of HTTP/2 take empty frames for a flood and end the connection after a hundred. Many servers end an answer
        // with one.
        let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
        let next = loop {
            match open.poll_frame(cx) {
                Poll::Ready(Ok(Some(frame))) if is_empty(&frame) => {}
                other => break other,
            }
        };
        match next {
            Poll::Ready(Ok(Some(frame))) => {
                own.heard = Instant::now();
                own.patience.as_mut().reset(own.heard + own.stall);
                own.has_trailers |= frame.is_trailers();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Ok(None)) if own.form == BodyForm::Messages && !own.has_trailers => {
                own.poll_failure(NO_STATUS, cx)
            }
            Poll::Ready(Ok(None)) => {
                own.open = None;
                Poll::Ready(None)
            }
            Poll::Ready(Err(failure)) => own.poll_failure(&failure.message(), cx),
            Poll::Pending if own.poll_silence(cx).is_ready() => {
                let message = format!("it sent nothing for {:?} in the middle of its answer", own.stall);
                own.poll_failure(&message, cx)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none() && self.cut.is_none()
    }
}
