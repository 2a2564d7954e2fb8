//! Timeout for request bodies: a body that never ends must not hold its connection.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use futures::{StreamExt, stream};
use tokio::time::sleep;

/// Time for a whole body to arrive.
const LIMIT: Duration = Duration::from_secs(10);

/// Wraps the request's body so that it fails once it takes too long.
pub(super) async fn in_time(request: Request) -> Request {
    request.map(|body| {
        let parts = Some((body.into_data_stream(), Box::pin(sleep(LIMIT))));
        Body::from_stream(stream::unfold(parts, |parts| async {
            let (mut data, mut due) = parts?;
            tokio::select! {
                part = data.next() => Some((part?.map_err(io::Error::other), Some((data, due)))),
                () = &mut due => Some((Err(late()), None)),
            }
        }))
    })
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("request body timed out after {LIMIT:?}: send it faster"))
}
