//! Server-sent events: an event for each token, as it appears.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parm_transport::server::GuestBody;
use serde_json::Value;

use super::problem::Problem;
use super::replica::Stay;
use super::request::Generation;

/// A stream in progress. Dropping it frees its place in the batch.
struct Events {
    request: Generation,
    stay: Stay,
    /// Tokens that were sent.
    sent: u32,
    opened: bool,
    ended: bool,
}

/// The response whose body follows the tokens.
pub(super) fn response(request: Generation, stay: Stay) -> Response<GuestBody> {
    let events = Events { request, stay, sent: 0, opened: false, ended: false };
    let frames = stream::unfold(events, |mut events| async move {
        let bytes = events.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), events))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Events {
    /// The next events; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut bytes = BytesMut::new();
        if !std::mem::replace(&mut self.opened, true) {
            event(&mut bytes, &self.request.opening());
            return Some(bytes.freeze());
        }
        let Some(progress) = self.stay.beyond(self.sent).await else {
            self.ended = true;
            event(&mut bytes, &Problem::gone().to_json());
            return Some(bytes.freeze());
        };
        (self.sent..progress.tokens).for_each(|number| event(&mut bytes, &self.request.token(number)));
        self.sent = progress.tokens;
        if progress.done {
            self.ended = true;
            event(&mut bytes, &self.request.closing());
            if self.request.reports_usage {
                event(&mut bytes, &self.request.report());
            }
            bytes.extend_from_slice(b"data: [DONE]\n\n");
        }
        Some(bytes.freeze())
    }
}

fn event(bytes: &mut BytesMut, document: &Value) {
    bytes.extend_from_slice(b"data: ");
    bytes.extend_from_slice(document.to_string().as_bytes());
    bytes.extend_from_slice(b"\n\n");
}
