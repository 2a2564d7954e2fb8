//! A connection: HTTP/1.1 or HTTP/2 on a socket, until it ends, is idle for too long, or the server drains.
//!
//! One coarse clock watches a connection, rather than a timer for every request: it looks as often as the shortest
//! time-out asks for, and closes what never sent a request in time, what has been idle for too long, and what does not take
//! its answers. Other requests of a connection finish before that, if they do so soon: a proxy may send the requests of
//! many clients over one connection, and only one of them be slow.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parm_protocol::InferenceService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::activity::{Activity, Running, Told};
use super::auth::Reach;
use super::grpc::{self, GrpcService};
use super::listener::Listener;
use super::rest;
use super::shared::Shared;
use crate::budget::Share;
use crate::frames::Socket;
use crate::tls::Welcome;

/// Flow-control windows of HTTP/2: a request of a megabyte arrives without waiting for the window.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Silence on an HTTP/2 connection after which the peer is asked whether it lives, and how long it has to answer.
const PING: Duration = Duration::from_secs(20);

/// What answers the requests of every connection.
pub(super) struct App<S> {
    shared: Arc<Shared<S>>,
    router: Router,
    grpc: GrpcService<S>,
    reach: Reach,
    welcome: Welcome,
}

impl<S> Clone for App<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            router: self.router.clone(),
            grpc: self.grpc.clone(),
            reach: self.reach,
            welcome: self.welcome.clone(),
        }
    }
}

impl<S: InferenceService> App<S> {
    pub(super) fn new(shared: Arc<Shared<S>>) -> Self {
        let (router, grpc) = (rest::router(shared.clone()), grpc::service(shared.clone()));
        Self { shared, router, grpc, reach: Reach::Open, welcome: Welcome::default() }
    }

    /// The same, for connections that are welcomed so.
    pub(super) fn behind(self, welcome: Welcome) -> Self {
        Self { welcome, ..self }
    }

    /// The same, behind a listener of this reach.
    pub(super) fn reached(&self, reach: Reach) -> Self {
        Self { grpc: self.grpc.clone().reached(reach), reach, ..self.clone() }
    }
}

/// Accepts connections until `stop`; never serves more at a time than there is room for.
///
/// A listener takes a place only once it has a connection: otherwise a listener that nobody calls would hold a place that
/// the others need. So each listener may hold one connection that waits; the rest wait in the kernel's queue.
pub(super) async fn accept<S: InferenceService>(
    listener: Listener,
    app: App<S>,
    room: Arc<Semaphore>,
    stop: CancellationToken,
) {
    let tracker = app.shared.connections.clone();
    loop {
        let next = async {
            let socket = listener.accept().await;
            Some((socket, room.clone().acquire_owned().await.ok()?))
        };
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = next => accepted,
        };
        let Some((socket, permit)) = accepted else { return };
        tracker.spawn(serve(socket, app.clone(), permit));
    }
}

/// Holds a connection's place among those that are allowed; frames keep it after the upgrade.
#[derive(Clone)]
pub(super) struct Place(#[allow(dead_code)] Arc<OwnedSemaphorePermit>);

async fn serve<S: InferenceService>(socket: Socket, app: App<S>, permit: OwnedSemaphorePermit) {
    let shared = app.shared.clone();
    let welcomed = tokio::select! {
        biased;
        welcomed = app.welcome.greet(socket) => welcomed,
        // Nothing was asked yet: whoever calls is better off elsewhere.
        () = shared.drain.cancelled() => return,
    };
    let Ok(socket) = welcomed else { return };
    let activity = Arc::new(Activity::new());
    let place = Place(Arc::new(permit));
    let requests = Requests { app, activity: activity.clone(), place };
    let builder = builder(&shared.config);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), requests));
    let (head, idle) = (shared.config.head_timeout, shared.config.idle_timeout);
    let unread = activity.unread.clone();
    let mut taking = shared.config.answer_timeout;
    let mut draining = false;
    let age = shared.ages.next();
    let old = async {
        match age {
            Some(age) => tokio::time::sleep(age).await,
            None => std::future::pending().await,
        }
    };
    let mut old = pin!(old);
    loop {
        // A request may come before the head's time is over, and the idle time be shorter.
        let patience = activity.patience(head, idle).min(idle).min(unread.patience(taking));
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = shared.drain.cancelled(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = old.as_mut(), if !draining && !activity.is_old() => {
                if activity.grow_old() {
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = tokio::time::sleep(patience) => {
                if activity.patience(head, idle).is_zero() {
                    // Nothing is in progress on it: there is no answer to lose.
                    return;
                }
                if unread.patience(taking).is_zero() {
                    let last = taking > shared.config.answer_timeout;
                    if last || activity.only_answers() {
                        tracing::debug!("a client did not take its answer within server.answer_timeout_ms");
                        return;
                    }
                    taking *= 2;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn builder(config: &super::Config) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_streams.get())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// The requests of one connection.
struct Requests<S> {
    app: App<S>,
    activity: Arc<Activity>,
    place: Place,
}

impl<S: InferenceService> Service<Request<Incoming>> for Requests<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let activity = self.activity.clone();
        let running = Running::new(activity.clone());
        activity.note_version(request.version());
        if is_grpc(&request) {
            let mut grpc = self.app.grpc.clone();
            return Box::pin(async move {
                let mut response = grpc.call(request).await?;
                // Whoever answers with one message says what it holds.
                Ok(match response.extensions_mut().remove::<Arc<Share>>() {
                    Some(share) => response.map(|body| Body::new(Told::whole(body, &activity, Some(share)))),
                    None => response.map(|body| Body::new(Told::messages(body, running))),
                })
            });
        }
        let (shared, mut router, reach) = (self.app.shared.clone(), self.app.router.clone(), self.app.reach);
        let place = request.headers().contains_key(header::UPGRADE).then(|| self.place.clone());
        Box::pin(async move {
            let _running = running;
            let mut response = match rest::admit(&shared, &request, reach) {
                Ok(visit) => {
                    if place.is_some() || visit.caller().is_known() {
                        request.extensions_mut().insert(visit.caller().clone());
                    }
                    place.map(|place| request.extensions_mut().insert(place));
                    // The visit lasts until the answer is there.
                    let answered = router.call(request.map(Body::new)).await;
                    drop(visit);
                    answered?
                }
                Err(refusal) => *refusal,
            };
            let last = activity.is_old() || !shared.service.is_ready();
            if response.version() < http::Version::HTTP_2 && last {
                // Old, draining, or not up yet: the client's next request should find its way elsewhere.
                response.headers_mut().entry(header::CONNECTION).or_insert(rest::CLOSE);
            }
            let share = response.extensions_mut().remove::<Arc<Share>>();
            Ok(response.map(|body| Body::new(Told::whole(body, &activity, share))))
        })
    }
}

/// Whether a request is gRPC's, on whichever port it came in.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod panics;
#[cfg(test)]
mod tests;
