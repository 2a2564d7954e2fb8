//! The requests of clients' connections: REST, gRPC and the upgrade to frames.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, header};
use hyper::body::{Body as _, Incoming};
use hyper::service::Service;
use parm_protocol::InferenceService;
use tower::Service as _;

use super::auth::Reach;
use super::grpc::{self, GrpcService};
use super::guest::{self, Guest};
use super::origin::Origin;
use super::rest;
use super::shared::Shared;
use crate::budget::Share;
use crate::listening::{Activity, Handler, Place, Running, Told, Unfinished};

pub(super) struct App<S> {
    shared: Arc<Shared<S>>,
    router: Router,
    grpc: GrpcService<S>,
    guest: Option<Arc<dyn Guest>>,
    reach: Reach,
}

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            router: self.router.clone(),
            grpc: self.grpc.clone(),
            guest: self.guest.clone(),
            reach: self.reach,
        }
    }
}

impl<S: InferenceService> App<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, guest: Option<Arc<dyn Guest>>) -> Self {
        let (router, grpc) = (rest::router(shared.clone()), grpc::service(shared.clone()));
        Self { shared, router, grpc, guest, reach: Reach::Open }
    }

    /// For a listener of this reach.
    pub(super) fn reached(&self, reach: Reach) -> Self {
        Self { grpc: self.grpc.clone().reached(reach), reach, ..self.clone() }
    }
}

impl<S: InferenceService> Handler for App<S> {
    type Body = Body;
    type Service = Requests<S>;

    fn connection(&self, activity: &Arc<Activity>, place: Place) -> Requests<S> {
        let app = Self { grpc: self.grpc.on_connection(), ..self.clone() };
        let origin = Origin::of(activity.client());
        Requests { app, activity: activity.clone(), place, origin }
    }
}

pub(super) struct Requests<S> {
    app: App<S>,
    activity: Arc<Activity>,
    place: Place,
    origin: Origin,
}

/// State that a connection of frames keeps until it ends: its place, and its activity, so that it is not evicted.
#[derive(Clone)]
pub(super) struct Kept(#[allow(dead_code)] Arc<(Place, Running)>);

impl<S: InferenceService> Service<Request<Incoming>> for Requests<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let activity = self.activity.clone();
        let running = Running::new(activity.clone());
        activity.note_version(request.version());
        // A call of a method that upstream servers have is a request like any other.
        if is_grpc(&request) && !self.app.shared.service.forwards(request.uri().path()) {
            let mut grpc = self.app.grpc.clone();
            return Box::pin(async move {
                let mut response = grpc.call(request).await?;
                // A response of one message has a share of the byte budget.
                Ok(match response.extensions_mut().remove::<Arc<Share>>() {
                    Some(share) => response.map(|body| Body::new(Told::whole(body, &activity, Some(share)))),
                    // A response without a share is a stream of small messages, such as that of health.
                    None => response.map(|body| Body::new(Told::messages(body, running.watching()))),
                })
            });
        }
        let guest = self.app.guest.as_ref().filter(|it| guest::serves(&***it, request.uri().path()));
        if let Some(guest) = guest.cloned() {
            let (shared, reach) = (self.app.shared.clone(), self.app.reach);
            return Box::pin(async move {
                let (request, unfinished) = Unfinished::lend(request);
                let mut response = guest::respond(&shared, guest, request.map(Body::new), reach).await;
                announce_last(&mut response, activity.is_old() || !shared.service.is_ready());
                if response.body().size_hint().exact().is_none() {
                    return Ok(response.map(|body| Body::new(Told::messages(body, running))));
                }
                let running = pass_over(&shared, unfinished, running).await;
                let response = response.map(|body| Body::new(Told::whole(body, &activity, None)));
                drop(running);
                Ok(response)
            });
        }
        let (shared, mut router, reach) = (self.app.shared.clone(), self.app.router.clone(), self.app.reach);
        let origin = self.origin.clone();
        let upgrades = request.headers().contains_key(header::UPGRADE);
        let kept = upgrades.then(|| Kept(Arc::new((self.place.clone(), Running::new(activity.clone())))));
        Box::pin(async move {
            let is_call = is_grpc(&request);
            let (mut request, unfinished) = Unfinished::lend(request);
            let mut response = match rest::admit(&shared, &request, reach) {
                Ok(visit) => {
                    if shared.service.forwards(request.uri().path()) {
                        let sender = (visit.caller(), &origin);
                        let answered = rest::forward(&shared, request.map(Body::new), sender).await;
                        // A stream is in progress until its end, for the limits of its key as well.
                        if answered.extensions().get::<rest::Lasting>().is_some() {
                            answered.map(|body| {
                                Body::new(http_body_util::BodyExt::map_frame(body, move |frame| {
                                    let _ = &visit;
                                    frame
                                }))
                            })
                        } else {
                            drop(visit);
                            answered
                        }
                    } else {
                        if kept.is_some() || visit.caller().is_known() {
                            request.extensions_mut().insert(visit.caller().clone());
                        }
                        kept.map(|kept| request.extensions_mut().insert(kept));
                        // The visit lasts until the response exists.
                        let answered = router.call(request.map(Body::new)).await;
                        drop(visit);
                        answered?
                    }
                }
                Err(refusal) => {
                    drop(request);
                    *refusal
                }
            };
            announce_last(&mut response, activity.is_old() || !shared.service.is_ready());
            if response.extensions_mut().remove::<rest::Lasting>().is_some() {
                return Ok(response.map(|body| Body::new(Told::messages(body, running))));
            }
            let share = response.extensions_mut().remove::<Arc<Share>>();
            // The client of a call may wait for the answer before it ends its request, and knows such resets.
            let running = if is_call { Some(running) } else { pass_over(&shared, unfinished, running).await };
            let response = response.map(|body| Body::new(Told::whole(body, &activity, share)));
            drop(running);
            Ok(response)
        })
    }
}

/// Reads the rest of a request whose response exists. A client that sends it slowly does not keep its connection from making
/// room for another.
async fn pass_over<S>(
    shared: &Shared<S>,
    unfinished: Unfinished<Incoming>,
    running: Running,
) -> Option<Running> {
    // A body little larger than the limit gets the answer that says so.
    let most = shared.config.max_body_bytes.get().saturating_mul(2);
    if !unfinished.is_left(most) {
        return Some(running);
    }
    drop(running);
    unfinished.pass_over(most, shared.config.body_timeout).await;
    None
}

/// Announces the last response of a connection that is old, draining, or not ready yet: the client's next request should
/// use another connection.
fn announce_last<B>(response: &mut Response<B>, last: bool) {
    if last && response.version() < http::Version::HTTP_2 {
        response.headers_mut().entry(header::CONNECTION).or_insert(rest::CLOSE);
    }
}

/// Whether a request is gRPC, on any port.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod forwarded;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod tests;
