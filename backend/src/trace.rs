//! The span of a request, a child of the frontend's or the client's span.
//!
//! Its level is `debug` and it has its own target, so that without a collector it is disabled at its call site and
//! costs a load and a branch.

use std::future::Future;

use parm_protocol::InferRequest;
use parm_transport::trace;
use tracing::{Instrument, Span};

/// The span of a request at `place`, which is an instance or the worker.
pub(crate) fn infer(request: &InferRequest, place: &str, traceparent: Option<&str>) -> Span {
    let span = tracing::debug_span!(
        target: "parm_backend::trace",
        "infer",
        model = %request.model.name,
        id = %request.id,
        place,
    );
    if let Some(traceparent) = traceparent {
        trace::adopt(&span, traceparent);
    }
    span
}

/// Awaits an answer within a span.
pub(crate) async fn within<T>(span: Span, answer: impl Future<Output = T>) -> T {
    if span.is_disabled() { answer.await } else { answer.instrument(span).await }
}
