//! A listener that serves: accepts connections and runs each in its own task.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;

use super::activity::Activity;
use super::age::Ages;
use super::connection;
use super::drain::Drain;
use super::limits::ConnectionLimits;
use super::listener::Listener;
use super::room::{Place, Room};
use crate::tls::{Spoken, Tls, Welcome};

/// Answers the requests of connections.
pub trait Handler: Clone + Send + 'static {
    /// Body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;
    /// Answers the requests of one connection.
    type Service: Service<
            Request<Incoming>,
            Response = Response<Self::Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Send
        + 'static;

    /// The service of a new connection. It records requests in progress in `activity`; a request that takes over the
    /// connection keeps the `place`.
    fn connection(&self, activity: &Arc<Activity>, place: Place) -> Self::Service;
}

/// A bound listener, ready to serve.
#[derive(Debug)]
pub struct Station {
    listener: Listener,
    setup: Setup,
}

/// State that all connections of a station share.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) ages: Arc<Ages>,
    pub(super) welcome: Welcome,
    pub(super) spoken: Spoken,
    pub(super) drain: Drain,
    room: Arc<Room>,
}

impl Station {
    /// A station, behind TLS if it is configured. Its connections take places of `room`, which several stations may
    /// share.
    pub fn new(
        listener: Listener,
        tls: &Tls,
        spoken: Spoken,
        limits: ConnectionLimits,
        room: Arc<Room>,
    ) -> Self {
        let welcome = tls.welcome(spoken);
        let ages = Arc::new(Ages::new(limits.age));
        let setup = Setup { limits: Arc::new(limits), ages, welcome, spoken, drain: Drain::default(), room };
        Self { listener, setup }
    }

    /// Ends its connections together with others.
    pub(crate) fn draining_with(mut self, drain: Drain) -> Self {
        self.setup.drain = drain;
        self
    }

    /// Spreads ages over the connections of several stations.
    pub(crate) fn ages(mut self, ages: Arc<Ages>) -> Self {
        self.setup.ages = ages;
        self
    }

    /// The listener.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Accepts connections until `stop`. Then the listener is closed; its connections continue.
    pub(crate) async fn accept<H: Handler>(self, handler: H, stop: impl Future<Output = ()>) {
        let Self { listener, setup } = self;
        let mut stop = std::pin::pin!(stop);
        loop {
            // A listener takes a place only when it has a connection: otherwise an unused listener would hold a place
            // that others need. One connection per listener may wait; the rest wait in the kernel's queue.
            let next = async {
                let socket = listener.accept(&setup.room, &setup.limits).await;
                let activity = Arc::new(Activity::new());
                let place = setup.room.enter(&activity, setup.limits.spare).await;
                (socket, activity, place)
            };
            let (socket, activity, place) = tokio::select! {
                biased;
                () = stop.as_mut() => return,
                next = next => next,
            };
            let serving = connection::serve(socket, setup.clone(), handler.clone(), activity, place);
            setup.drain.connections.spawn(serving);
        }
    }

    /// Serves until `stop`, lets connections finish within the limit, and cuts the others.
    pub async fn serve<H: Handler>(self, handler: H, stop: impl Future<Output = ()>) {
        let (drain, limit) = (self.setup.drain.clone(), self.setup.limits.drain);
        self.accept(handler, stop).await;
        let cut = drain.end(limit).await;
        if cut > 0 {
            tracing::debug!(cut, "connections were cut: the drain timeout expired");
        }
    }
}

/// Serves one connection like a station, for tests that make the socket themselves.
#[cfg(test)]
pub(crate) async fn serve_one<H: Handler>(
    socket: crate::frames::Socket,
    handler: H,
    limits: ConnectionLimits,
    drain: Drain,
) {
    let room = Room::new(1, "the test");
    let ages = Arc::new(Ages::new(limits.age));
    let (welcome, spoken) = (Welcome::default(), Spoken::Http2);
    let setup = Setup { limits: Arc::new(limits), ages, welcome, spoken, drain, room: room.clone() };
    let activity = Arc::new(Activity::new());
    let place = room.enter(&activity, setup.limits.spare).await;
    connection::serve(socket, setup, handler, activity, place).await;
}
