//! Routes of another protocol, next to those of the Open Inference Protocol and on the same addresses.
//!
//! A guest has the connections, the limits, the keys and the TLS of its server. It shapes its own errors, because clients
//! of another protocol cannot read ours.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use parm_protocol::{Error, InferenceService, Transport};

use super::body;
use super::requests::lasting;
use super::shared::{Reach, Shared};
use crate::keys::{self, Access, Route};
use crate::listening::Lent;

/// The body of a guest's response: in one piece if its size is known, otherwise a stream.
pub type GuestBody = UnsyncBoxBody<Bytes, Infallible>;

/// The response of a guest.
pub type GuestFuture = Pin<Box<dyn Future<Output = Response<GuestBody>> + Send>>;

/// Answers the requests of another protocol.
pub trait Guest: Send + Sync {
    /// The routes and the access that each requires.
    fn routes(&self) -> &'static [Route];

    /// Answers a request with this head and this whole body, or rejects it with the error of the server.
    fn answer(&self, head: Parts, body: Result<Bytes, Error>) -> GuestFuture;
}

pub(super) fn serves(guest: &dyn Guest, path: &str) -> bool {
    keys::methods(guest.routes(), path).next().is_some()
}

/// Checks the access of a request, reads its body and lets the guest answer.
pub(super) async fn respond<S: InferenceService>(
    shared: &Shared<S>,
    guest: &dyn Guest,
    request: Request<Lent<Incoming>>,
    reach: Reach,
) -> Response<Body> {
    let route = keys::find(guest.routes(), request.method(), request.uri().path());
    let access = route.map_or(Access::AnyKey, |route| route.access);
    let (head, body) = request.into_parts();
    let rejected = |error| Err(shared.rejected(error, Transport::Http));
    let visit = match shared.check(&head.headers, access, reach) {
        Ok(visit) => visit,
        Err(error) => return guest.answer(head, rejected(error)).await.map(Body::new),
    };
    let read = match route {
        Some(_) => body::read(Request::from_parts(head.clone(), body), shared).await,
        None => Err(Error::Unimplemented { what: format!("{} on {}", head.method, head.uri.path()) }),
    };
    let (body, share) = match read {
        Ok(held) => (Ok(held.bytes), Some(held.share)),
        Err(error) => (rejected(error), None),
    };
    let response = guest.answer(head, body).await.map(Body::new);
    // The body counts against the budget until the response exists.
    drop(share);
    lasting(response, visit)
}
