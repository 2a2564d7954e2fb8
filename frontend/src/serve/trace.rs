//! Spans of a request: one per query at the frontend, with one child per job.
//!
//! They have level `debug` and their own target, so without a collector they cost a load and a branch at each call
//! site.

use parm_protocol::{Context, InferRequest, OpaqueRequest};
use slotmap::Key;
use tracing::Span;
use tracing::field::Empty;

use super::attempt::{Job, Payload};

/// The span of a request, a child of the client's if it sent one.
pub(super) fn query(request: &InferRequest, context: &Context) -> Span {
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        "query",
        model = %request.model.name,
        id = %request.id,
        outcome = Empty,
    );
    adopted(span, context)
}

/// The span of a request for an upstream server.
pub(super) fn forwarded(route: &str, request: &OpaqueRequest, context: &Context) -> Span {
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        "query",
        model = %route,
        method = %request.method,
        path = %request.target.path(),
        outcome = Empty,
    );
    adopted(span, context)
}

/// The span of a run, a child of its first query's; those of its other queries are linked.
pub(super) fn job(job: &Job) -> Span {
    let spans = || job.payloads().filter_map(Payload::row).map(|row| &row.call.inputs.span);
    let Some(first) = spans().next().filter(|first| !first.is_disabled()) else { return Span::none() };
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        parent: first,
        "job",
        job = job.key.data().as_ffi(),
        role = ?job.role,
        instance = %job.instance.name,
        rows = job.rows.len(),
    );
    for other in spans().skip(1) {
        span.follows_from(other);
    }
    span
}

/// Makes a span a child of the client's, if it sent one.
fn adopted(span: Span, context: &Context) -> Span {
    if let Some(traceparent) = &context.traceparent {
        parm_transport::trace::adopt(&span, traceparent);
    }
    span
}
