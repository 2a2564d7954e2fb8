//! The requests of clients' connections: REST, gRPC, the upgrade to frames, requests for upstream servers, and guests.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderValue, Request, Response, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use parm_protocol::client::BoxFuture;
use parm_protocol::{InferenceService, Transport, is_grpc};

use super::forward::{self, ErrorForm};
use super::grpc;
use super::guest::{self, Guest};
use super::rest;
use super::shared::{Reach, Shared};
use crate::keys::{self, Access, Visit};
use crate::listening::{Answers, Connection, Lent};

/// Answers the requests at a listener of this reach.
pub(super) fn service<S: InferenceService>(
    shared: Arc<Shared<S>>,
    guest: Option<Arc<dyn Guest>>,
    reach: Reach,
) -> impl Answers<Body> {
    tower::service_fn(move |request: Request<Lent<Incoming>>| {
        let (shared, guest) = (shared.clone(), guest.clone());
        let answered: BoxFuture<'static, _> = Box::pin(async move {
            let is_http1 = request.version() < Version::HTTP_2;
            let mut response = answer(&shared, guest.as_deref(), request, reach).await;
            // The next request of a client should use another connection, while this server is draining or not ready yet.
            if is_http1 && response.version() < Version::HTTP_2 && !shared.service.is_ready() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().entry(header::CONNECTION).or_insert(close);
            }
            Ok::<_, Infallible>(response)
        });
        answered
    })
}

async fn answer<S: InferenceService>(
    shared: &Arc<Shared<S>>,
    guest: Option<&dyn Guest>,
    mut request: Request<Lent<Incoming>>,
    reach: Reach,
) -> Response<Body> {
    let connection = request.extensions_mut().remove::<Connection>().expect("a station adds it");
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // A call of a method that upstream servers have is a request like any other.
    let forwards = shared.service.forwards(&path);
    if !forwards && is_grpc(request.headers()) {
        return grpc::answer(shared, request, reach).await;
    }
    if let Some(guest) = guest.filter(|guest| !forwards && guest::serves(*guest, &path)) {
        return guest::respond(shared, guest, request, reach).await;
    }
    let form = if forwards { ErrorForm::of(&path, request.headers()) } else { ErrorForm::Protocol };
    let transport = form.transport();
    let route = keys::find(keys::REST, &method, &path).filter(|_| !forwards);
    // Clients without a key cannot probe for paths.
    let access = if forwards { Access::Infer } else { route.map_or(Access::AnyKey, |route| route.access) };
    let visit = match shared.check(request.headers(), access, reach) {
        Ok(visit) => visit,
        Err(error) => return forward::problem(&shared.rejected(error, transport), form),
    };
    if access == Access::Control {
        shared.changed(&method, &path, &visit);
    }
    // The visit lasts until the response exists, and until the end of a stream.
    match route {
        _ if forwards => lasting(forward::answer(shared, request, &visit, &connection).await, visit),
        Some(route) => rest::answer(shared, route, request, &visit, connection).await,
        None => rest::not_served(shared, &method, &path),
    }
}

/// Keeps a visit until the end of a response that is a stream, for the limits of its key.
pub(super) fn lasting(response: Response<Body>, visit: Visit) -> Response<Body> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &visit;
            frame
        }))
    })
}

impl ErrorForm {
    /// The transport of a request with errors of this form, for the counts of rejections.
    fn transport(self) -> Transport {
        if self == Self::Grpc { Transport::Grpc } else { Transport::Http }
    }
}

#[cfg(test)]
mod forwarded;
#[cfg(test)]
pub(super) mod tests;
