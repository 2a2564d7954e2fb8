//! A whole request body: limited in size and time, and counted against the byte budget while it arrives.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use parm_protocol::{Error, InferenceService};

use super::shared::Shared;
use crate::begun::Begun;
use crate::budget::Share;
use crate::end_to_end::other_coding;
use crate::grpc;
use crate::listening::Lent;

/// The error of a client that sends a second message in one call.
const ONE_MESSAGE: &str = "a call has one message: send each request as its own call";

/// A body and its share of the server's byte budget.
pub(super) struct Held {
    pub(super) bytes: Bytes,
    pub(super) share: Arc<Share>,
}

/// Reads a body that is of the protocol. A body in one piece is not copied.
pub(super) async fn read<S: InferenceService>(
    request: Request<Lent<Incoming>>,
    shared: &Shared<S>,
) -> Result<Held, Error> {
    let coding = request.headers().get(CONTENT_ENCODING).filter(|coding| *coding != "identity");
    if coding.is_some() {
        return Err(Error::Unimplemented {
            what: "compressed bodies: send them without content-encoding".into(),
        });
    }
    read_as_sent(request, shared).await
}

/// Reads any body as it is.
pub(super) async fn read_as_sent<S: InferenceService>(
    request: Request<Lent<Incoming>>,
    shared: &Shared<S>,
) -> Result<Held, Error> {
    if let Some(coding) = other_coding(request.headers()) {
        let coding: String = coding.chars().take(100).collect();
        let what = format!("the transfer coding '{coding}': send 'chunked' alone, or a content-length");
        return Err(Error::Unimplemented { what });
    }
    let limit = shared.config.max_body_bytes.get();
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(Error::BodyTooLarge { limit });
    }
    let share = shared.budget.share();
    let mut body = Counted { body: request.into_body(), share: &share };
    let bytes = in_time(shared, async {
        let Some(first) = body.next().await? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        body.collect(first, announced.unwrap_or(limit), limit).await
    });
    Ok(Held { bytes: bytes.await?, share })
}

/// Reads the only message of a gRPC call, which has at most so many bytes.
pub(super) async fn read_message<S: InferenceService>(
    headers: &HeaderMap,
    body: Lent<Incoming>,
    shared: &Shared<S>,
    most: usize,
) -> Result<Held, Error> {
    if headers.get("grpc-encoding").is_some_and(|coding| coding != "identity") {
        return Err(Error::Unimplemented { what: "message compression".into() });
    }
    let share = shared.budget.share();
    let mut body = Counted { body, share: &share };
    let bytes = in_time(shared, async {
        let mut begun =
            body.next().await?.ok_or_else(|| Error::malformed("the request message is missing"))?;
        let prefix = loop {
            if let Some((prefix, _)) = begun.split_first_chunk() {
                break *prefix;
            }
            let more =
                body.next().await?.ok_or_else(|| Error::malformed("unexpected EOF within a message"))?;
            begun = [begun, more].concat().into();
        };
        let length = grpc::length(prefix).map_err(Error::malformed)?;
        if length > most {
            return Err(Error::BodyTooLarge { limit: most });
        }
        let whole = grpc::PREFIX + length;
        let bytes = match body.collect(begun, whole, whole).await {
            // Bytes beyond the message are another one.
            Err(Error::BodyTooLarge { .. }) => return Err(Error::malformed(ONE_MESSAGE)),
            read => read?,
        };
        match bytes.len() {
            read if read < whole => Err(Error::malformed("unexpected EOF within a message")),
            read if read > whole => Err(Error::malformed(ONE_MESSAGE)),
            _ => Ok(bytes.slice(grpc::PREFIX..)),
        }
    });
    Ok(Held { bytes: bytes.await?, share })
}

async fn in_time<S: InferenceService>(
    shared: &Shared<S>,
    read: impl Future<Output = Result<Bytes, Error>>,
) -> Result<Bytes, Error> {
    let limit = shared.config.body_timeout;
    let late = |_| {
        let message = format!("the body did not arrive within {limit:?}: send it faster");
        Error::Malformed { message }
    };
    tokio::time::timeout(limit, read).await.map_err(late)?
}

/// A body that is counted while it arrives.
pub(super) struct Counted<'a, B> {
    pub(super) body: B,
    pub(super) share: &'a Share,
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Counted<'_, B> {
    /// The next bytes; trailers are ignored.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame
                .map_err(|error| Error::Malformed { message: format!("the body ended early: {error}") })?;
            if let Ok(bytes) = frame.into_data()
                && !bytes.is_empty()
            {
                self.share.grow(bytes.len())?;
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Reads the rest of a body after its `first` bytes, of which `announced` are expected and `limit` accepted.
    async fn collect(&mut self, first: Bytes, announced: usize, limit: usize) -> Result<Bytes, Error> {
        let mut begun = Begun::default();
        begun.add(first, announced);
        while let Some(bytes) = self.next().await? {
            if begun.bytes().len() + bytes.len() > limit {
                return Err(Error::BodyTooLarge { limit });
            }
            begun.add(bytes, announced);
        }
        Ok(begun.freeze())
    }
}
