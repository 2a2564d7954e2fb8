//! `GET /v2/frames`: a connection leaves HTTP and goes on in frames.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use parm_protocol::InferenceService;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::frames::{self, Negotiated, PROTOCOL, Socket};

/// What is offered to those who ask for frames.
pub(crate) struct Offer<S> {
    service: Arc<S>,
    limits: Arc<frames::Limits>,
    drain: CancellationToken,
    connections: TaskTracker,
}

impl<S: InferenceService> Offer<S> {
    /// Connections end when `drain` is cancelled and everything accepted is answered; `connections` then becomes empty.
    pub(crate) fn new(
        service: Arc<S>,
        limits: frames::Limits,
        drain: CancellationToken,
        connections: TaskTracker,
    ) -> Self {
        Self { service, limits: Arc::new(limits), drain, connections }
    }

    /// Answers a request for frames: `101`, and the connection is served from there on, or `426` to who asked for
    /// something else. The connection's stream must be a [`Socket`] in a [`TokioIo`].
    ///
    /// `place` is held until the connection ends: a connection of frames counts among those that are allowed.
    pub(crate) fn answer<B>(&self, request: &mut Request<B>, place: impl Send + 'static) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        let Some(upgrade) =
            asks_for_frames(request.headers()).then(|| request.extensions_mut().remove()).flatten()
        else {
            *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
            return response;
        };
        headers.extend(Negotiated::of(&self.limits.config).headers());
        let tokens = frames::offers_tokens(request.headers()) && self.service.giver().is_some();
        if tokens {
            headers.insert(frames::TOKENS, HeaderValue::from_static("1"));
        }
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let mut offer = self.clone();
        if tokens {
            Arc::make_mut(&mut offer.limits).tokens = true;
        }
        self.connections.spawn(async move {
            let _place = place;
            offer.serve(upgrade).await;
        });
        response
    }

    /// The connections that speak frames.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.connections
    }

    async fn serve(self, upgrade: OnUpgrade) {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "a client asked for frames and went away"),
        };
        let Some((socket, already_read)) = socket(upgraded) else {
            return tracing::error!("a connection that asked for frames is no plain socket");
        };
        if let Err(error) = frames::serve(socket, &already_read, self.service, &self.limits, self.drain).await
        {
            tracing::debug!(%error, "a connection of frames ended");
        }
    }
}

impl<S> Clone for Offer<S> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            limits: Arc::clone(&self.limits),
            drain: self.drain.clone(),
            connections: self.connections.clone(),
        }
    }
}

fn asks_for_frames(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    protocols
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case(PROTOCOL))
}

/// The plain socket below, and what was read from it already: frames do without the layers of HTTP.
fn socket(upgraded: Upgraded) -> Option<(Socket, bytes::Bytes)> {
    match auto::upgrade::downcast::<TokioIo<Socket>>(upgraded) {
        Ok(parts) => Some((parts.io.into_inner(), parts.read_buf)),
        Err(upgraded) => {
            let parts = upgraded.downcast::<TokioIo<Socket>>().ok()?;
            Some((parts.io.into_inner(), parts.read_buf))
        }
    }
}
