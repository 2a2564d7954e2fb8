//! A request's body, whole: bounded in size and in time.

use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;

use crate::Error;
use crate::server::Config;

/// Reserved at most before bytes have come: what a client announces is not what it sends.
const RESERVE: usize = 1 << 20;

/// Reads the body. One that comes in one piece is not copied.
pub(super) async fn read(request: Request, config: &Config) -> Result<Bytes, Error> {
    let limit = config.max_body_bytes.get();
    let announced =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(Error::BodyTooLarge { limit });
    }
    let collect = collect(request.into_body(), announced.unwrap_or(0), limit);
    let late = |_| Error::Malformed {
        message: format!("the body did not arrive within {:?}: send it faster", config.body_timeout()),
    };
    tokio::time::timeout(config.body_timeout(), collect).await.map_err(late)?
}

async fn collect(mut body: axum::body::Body, announced: usize, limit: usize) -> Result<Bytes, Error> {
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    let Some(second) = next(&mut body).await? else {
        return if first.len() > limit { Err(Error::BodyTooLarge { limit }) } else { Ok(first) };
    };
    let mut whole = BytesMut::with_capacity(
        announced.clamp(first.len() + second.len(), RESERVE.max(first.len() + second.len())),
    );
    whole.extend_from_slice(&first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        if whole.len() + bytes.len() > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        whole.extend_from_slice(&bytes);
        piece = next(&mut body).await?;
    }
    Ok(whole.freeze())
}

/// The next bytes; trailers are passed over.
async fn next(body: &mut axum::body::Body) -> Result<Option<Bytes>, Error> {
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Error::Malformed { message: format!("the body broke off: {error}") })?;
        if let Ok(bytes) = frame.into_data()
            && !bytes.is_empty()
        {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
