//! The end of an answer that is passed on: whole, cut by its server, or given up by its client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parm_protocol::{Broken, Error, OpaqueAnswer, OpaqueBody, RestOfBody};

/// Takes the error if the server cut the answer. Called once.
type OnEnd = Box<dyn FnOnce(Option<&Error>) + Send>;

/// The rest of an answer whose end is reported.
struct Watched {
    rest: RestOfBody,
    broken: Broken,
    told: Option<OnEnd>,
}

/// Reports the end of an answer: at once if it is whole, and otherwise after its rest.
pub(super) fn watch(
    mut answer: OpaqueAnswer,
    told: impl FnOnce(Option<&Error>) + Send + 'static,
) -> OpaqueAnswer {
    let broken = answer.broken.clone();
    answer.body = match answer.body {
        OpaqueBody::Begun(first, rest) => {
            OpaqueBody::Begun(first, Box::pin(Watched { rest, broken, told: Some(Box::new(told)) }))
        }
        whole @ OpaqueBody::Whole(_) => {
            told(None);
            whole
        }
    };
    answer
}

impl Watched {
    fn tell(&mut self, error: Option<&Error>) {
        if let Some(told) = self.told.take() {
            told(error);
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let own = &mut *self;
        let polled = own.rest.as_mut().poll_frame(cx);
        let broken = own.broken.clone();
        match (&polled, broken.error()) {
            (_, Some(error)) | (Poll::Ready(Some(Err(error))), _) => own.tell(Some(error)),
            (Poll::Ready(None), None) => own.tell(None),
            (Poll::Ready(Some(Ok(_))), None) if own.rest.is_end_stream() => own.tell(None),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.tell(None);
    }
}
