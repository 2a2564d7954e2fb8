//! The request of a gRPC call: whole, or its first messages while the client may send more.
//!
//! A call is passed on with its first whole message, so client and server can take turns. Later messages are passed on as they
//! come, no faster than a server reads them.

use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use parm_protocol::{Error, InferenceService, LARGEST_COPIED, RequestStream, has_message};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::body::{Counted, Held};
use super::shared::Shared;
use crate::begun::Begun;
use crate::budget::Share;
use crate::listening::Lent;

/// The rest of a request, which is read until this is dropped.
pub(super) struct Asking {
    pub(super) stream: Arc<RequestStream>,
    /// The error of a request that holds too much; `None` once it can no longer come.
    failed: Option<oneshot::Receiver<Error>>,
    _filler: AbortOnDropHandle<()>,
}

impl Asking {
    /// The error of a request that holds too much, if that happens.
    pub(super) async fn failed(&mut self) -> Error {
        poll_fn(|cx| self.poll_failed(cx)).await
    }

    /// The same, now.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(failed) = &mut self.failed else { return Poll::Pending };
        let told = ready!(failed.poll_unpin(cx));
        self.failed = None;
        // Without an error it ended, or its client left.
        told.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Reads a call up to its first whole message, and what there is of it after that.
pub(super) async fn read<S: InferenceService>(
    request: Request<Lent<Incoming>>,
    shared: &Shared<S>,
) -> Result<(Held, Option<Asking>), Error> {
    let (within, limit) = (shared.config.body_timeout, shared.config.max_body_bytes.get());
    let share = shared.budget.share();
    let mut arriving = Counted { body: request.into_body(), share: &share };
    let late = |_| {
        let message = format!("the first message did not arrive within {within:?}: send it faster");
        Error::Malformed { message }
    };
    let (bytes, has_ended) =
        tokio::time::timeout(within, begin(&mut arriving, limit)).await.map_err(late)??;
    let body = arriving.body;
    if has_ended {
        return Ok((Held { bytes, share }, None));
    }
    let stream = RequestStream::new(bytes.clone());
    let (fail, failed) = oneshot::channel();
    let filled = stream.clone();
    let filler = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = fill(body, &filled, &share).await {
            let _ = fail.send(error);
        }
    }));
    // The answer has a share of its own.
    let held = Held { bytes, share: shared.budget.share() };
    Ok((held, Some(Asking { stream, failed: Some(failed), _filler: filler })))
}

/// The beginning of a call, and whether it is all of it. The limit holds for the first message: later ones are passed on.
async fn begin<B: Body<Data = Bytes, Error: Display> + Unpin>(
    arriving: &mut Counted<'_, B>,
    limit: usize,
) -> Result<(Bytes, bool), Error> {
    let Some(first) = arriving.next().await? else { return Ok((Bytes::new(), true)) };
    if first.len() > limit {
        return Err(Error::BodyTooLarge { limit });
    }
    let most = limit.min(first.len() + LARGEST_COPIED);
    let mut begun = Begun::default();
    begun.add(first, 0);
    loop {
        let length = begun.bytes().len();
        let is_passed_on = has_message(begun.bytes());
        let next = match is_passed_on {
            false => arriving.next().await?,
            true if length > most => return Ok((begun.freeze(), false)),
            true => match arriving.next().now_or_never() {
                Some(next) => next?,
                None => return Ok((begun.freeze(), false)),
            },
        };
        let Some(bytes) = next else { return Ok((begun.freeze(), true)) };
        if !is_passed_on && length + bytes.len() > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        begun.add(bytes, 0);
    }
}

/// Reads the rest of a request as its servers do. A client that leaves ends everything that belongs to its call.
async fn fill(mut body: Lent<Incoming>, stream: &RequestStream, share: &Share) -> Result<(), Error> {
    loop {
        poll_fn(|cx| stream.poll_room(cx)).await;
        match body.frame().await {
            None => {
                stream.end();
                return Ok(());
            }
            Some(Err(_)) => return Ok(()),
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                if !bytes.is_empty() {
                    stream.push(bytes);
                    share.turn_into(stream.held())?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::budget::Budget;

    /// A message of so many bytes.
    fn message(size: usize) -> Bytes {
        let length = u32::try_from(size).unwrap().to_be_bytes();
        [&[0], &length[..], &vec![7; size]].concat().into()
    }

    async fn begun(pieces: Vec<Bytes>, limit: usize) -> Result<(usize, bool), Error> {
        let budget = Budget::new(1 << 30);
        let share = budget.share();
        let pieces = futures::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
        let mut arriving = Counted { body: axum::body::Body::from_stream(pieces), share: &share };
        begin(&mut arriving, limit).await.map(|(bytes, has_ended)| (bytes.len(), has_ended))
    }

    #[tokio::test]
    async fn limit_holds_for_the_first_message_only() {
        let fast = vec![message(600), message(600), message(600)];
        assert_eq!(begun(fast, 1000).await, Ok((1210, false)), "the third message follows");
        let [head, tail] = [message(1200).slice(..605), message(1200).slice(605..)];
        assert_eq!(begun(vec![head, tail], 1000).await, Err(Error::BodyTooLarge { limit: 1000 }));
        assert_eq!(begun(vec![message(600), message(300)], 1000).await, Ok((910, true)));
    }
}
