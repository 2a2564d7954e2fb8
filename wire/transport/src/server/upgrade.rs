//! `GET /v2/frames`: upgrades an HTTP connection to frames.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use parm_protocol::InferenceService;
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use tokio_util::task::TaskTracker;

use crate::frames::{self, Negotiated, PROTOCOL, Socket};
use crate::keys::Caller;
use crate::listening::Drain;

pub(crate) struct Offer<S> {
    service: Arc<S>,
    limits: Arc<frames::Limits>,
    drain: Drain,
}

impl<S: InferenceService> Offer<S> {
    /// Connections end with others: when every accepted request is answered, or when they are cut.
    pub(crate) fn new(service: Arc<S>, limits: frames::Limits, drain: Drain) -> Self {
        Self { service, limits: Arc::new(limits), drain }
    }

    /// Answers a request for frames: `101`, and the connection is served as frames from then on, or `426` to a client
    /// that requested another protocol. The connection's stream must be a [`Socket`] in a [`TokioIo`].
    ///
    /// `place` is held until the connection ends, as a connection of frames counts against the limit. Its requests are
    /// `caller`'s, and it ends at this age.
    pub(crate) fn answer<B>(
        &self,
        request: &mut Request<B>,
        caller: Caller,
        age: Option<Duration>,
        place: impl Send + 'static,
    ) -> Response<()> {
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
        let giver = self.service.giver().filter(|_| frames::offers_grants(request.headers()));
        let slots = giver.as_ref().and_then(|giver| giver.slots());
        headers.extend(Negotiated { slots, ..Negotiated::of(&self.limits.config) }.headers());
        let grants = giver.is_some();
        if grants {
            headers.insert(frames::GRANTS, HeaderValue::from_static("1"));
        }
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let limits = frames::Limits { caller, age, grants, ..frames::Limits::clone(&self.limits) };
        let (service, Drain { begun, cut, .. }) = (self.service.clone(), self.drain.clone());
        self.drain.connections.spawn(async move {
            let _place = place;
            cut.run_until_cancelled(serve(upgrade, service, limits, begun)).await;
        });
        response
    }

    #[cfg(test)]
    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.drain.connections
    }
}

async fn serve<S: InferenceService>(
    upgrade: OnUpgrade,
    service: Arc<S>,
    limits: frames::Limits,
    drain: CancellationToken,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "a client requested frames and disconnected"),
    };
    let Some((socket, already_read)) = socket(upgraded) else {
        return tracing::error!("cannot upgrade to frames: the connection is not a plain socket");
    };
    if let Err(error) = frames::serve(socket, &already_read, service, &limits, drain).await {
        tracing::debug!(%error, "a connection of frames ended");
    }
}

fn asks_for_frames(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    protocols
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case(PROTOCOL))
}

/// The plain socket, and the bytes read from it so far: frames bypass the layers of HTTP.
fn socket(upgraded: Upgraded) -> Option<(Socket, bytes::Bytes)> {
    match auto::upgrade::downcast::<TokioIo<Socket>>(upgraded) {
        Ok(parts) => Some((parts.io.into_inner(), parts.read_buf)),
        Err(upgraded) => {
            let parts = upgraded.downcast::<TokioIo<Socket>>().ok()?;
            Some((parts.io.into_inner(), parts.read_buf))
        }
    }
}
