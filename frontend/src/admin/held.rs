//! Stream of the jobs that this frontend holds at each server, for its neighbours.

use std::convert::Infallible;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use parm_transport::keys::{Access, Caller};

use super::refusal::Refusal;
use crate::neighbours::ReportStream;
use crate::serve::Frontend;

pub(super) async fn tell(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let reports = ReportStream::begin(frontend.core.clone())?;
    let lines = stream::unfold((reports, caller), |(mut reports, caller)| async {
        let line = reports.next().await?;
        // Revoking a key ends its open streams.
        caller.still_opens(Access::Read).then_some((Ok::<_, Infallible>(line), (reports, caller)))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}
