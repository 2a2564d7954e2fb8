//! `GET /v2/frames`: upgrades an HTTP connection to frames.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use parm_protocol::InferenceService;
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::frames::{self, Negotiated, PROTOCOL, Socket};
use crate::keys::Caller;
use crate::listening::Drain;

/// Answers a request for frames: `101`, and the connection is served as frames from then on, or `426` to a client
/// that requested another protocol. The connection's stream must be a [`Socket`] in a [`TokioIo`].
///
/// `place` is held until the connection ends, as a connection of frames counts against the limit. Its requests are
/// `caller`'s. It ends with the others of its server, when every accepted request is answered, or when they are cut.
pub(crate) fn upgrade<S: InferenceService, B>(
    shared: &Shared<S>,
    request: &mut Request<B>,
    caller: Caller,
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
    let giver = shared.service.giver().filter(|_| Negotiated::from_headers(request.headers()).grants);
    let (grants, slots) = (giver.is_some(), giver.and_then(|giver| giver.slots()));
    let config = shared.config.frames();
    headers.extend([Negotiated { slots, grants, ..Negotiated::of(&config) }.header()]);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let limits =
        frames::Limits { config, budget: shared.budget.clone(), caller, age: shared.ages.next(), grants };
    let (service, Drain { begun, cut, .. }) = (shared.service.clone(), shared.drain.clone());
    shared.drain.connections.spawn(async move {
        let _place = place;
        cut.run_until_cancelled(serve(upgrade, service, limits, begun)).await;
    });
    response
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
