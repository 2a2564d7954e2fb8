//! A whole request body: limited in size and time, and counted against the byte budget.

use std::sync::Arc;

use axum::extract::Request;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use parm_protocol::{Error, InferenceService};

use super::inflate::Coding;
use crate::budget::Share;
use crate::end_to_end::other_coding;
use crate::server::shared::Shared;

/// Most bytes reserved before any arrived: the announced length may be wrong.
const RESERVE: usize = 1 << 20;

/// A body and its share of the server's byte budget.
pub(in crate::server) struct Held {
    pub(in crate::server) bytes: Bytes,
    pub(in crate::server) share: Arc<Share>,
}

/// Reads the body. A body in one piece is not copied.
pub(in crate::server) async fn read<S: InferenceService>(
    request: Request,
    shared: &Shared<S>,
) -> Result<Held, Error> {
    let (coding, limit) = (Coding::of(request.headers())?, shared.config.max_body_bytes.get());
    let Held { bytes, share } = read_as_sent(request, shared).await?;
    let Some(coding) = coding else { return Ok(Held { bytes, share }) };
    // Takes milliseconds for a large body, which other connections should not wait for.
    let counted = share.clone();
    let inflated = tokio::task::spawn_blocking(move || coding.inflate(&bytes, limit, &counted));
    let failed = |error: tokio::task::JoinError| Error::Internal { message: error.to_string() };
    Ok(Held { bytes: inflated.await.map_err(failed)??, share })
}

/// Reads the body and leaves it compressed.
pub(super) async fn read_as_sent<S: InferenceService>(
    request: Request,
    shared: &Shared<S>,
) -> Result<Held, Error> {
    if let Some(coding) = other_coding(request.headers()) {
        let coding: String = coding.chars().take(100).collect();
        let what = format!("the transfer coding '{coding}': send 'chunked' alone, or a content-length");
        return Err(Error::Unimplemented { what });
    }
    let config = &shared.config;
    let limit = config.max_body_bytes.get();
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(Error::BodyTooLarge { limit });
    }
    let share = shared.budget.share();
    let mut body = Counted { body: request.into_body(), share: &share };
    let collect = collect(&mut body, announced.unwrap_or(0), limit);
    let late = |_| {
        let message = format!("the body did not arrive within {:?}: send it faster", config.body_timeout);
        Error::Malformed { message }
    };
    let bytes = tokio::time::timeout(config.body_timeout, collect).await.map_err(late)??;
    Ok(Held { bytes, share })
}

async fn collect(body: &mut Counted<'_>, announced: usize, limit: usize) -> Result<Bytes, Error> {
    let Some(first) = body.next().await? else { return Ok(Bytes::new()) };
    let Some(second) = body.next().await? else {
        return if first.len() > limit { Err(Error::BodyTooLarge { limit }) } else { Ok(first) };
    };
    let mut whole = Vec::with_capacity(
        announced.clamp(first.len() + second.len(), RESERVE.max(first.len() + second.len())),
    );
    whole.extend_from_slice(&first);
    let most = if announced > 0 { announced } else { limit };
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        if whole.len() + bytes.len() > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        let needed = whole.len() + bytes.len();
        if needed > whole.capacity() {
            // Doubled, but never beyond the size that can arrive.
            let room = (2 * whole.capacity()).min(most).max(needed);
            whole.reserve_exact(room - whole.len());
        }
        whole.extend_from_slice(&bytes);
        piece = body.next().await?;
    }
    Ok(whole.into())
}

/// A body that is counted while it arrives.
pub(super) struct Counted<'a> {
    pub(super) body: axum::body::Body,
    pub(super) share: &'a Share,
}

impl Counted<'_> {
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
}
