//! Spans of a request: one per query at the frontend, with one child per job.
//!
//! They have level `debug` and their own target, so without a collector they cost a load and a branch at each call
//! site.

use parm_protocol::{Context, InferRequest, OpaqueRequest};
use tracing::Span;
use tracing::field::Empty;

use super::job::Launch;

/// The span of a request, a child of the client's if it sent one.
pub(super) fn query(request: &InferRequest, context: &Context) -> Span {
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        "query",
        model = %request.model.name,
        id = %request.id,
        outcome = Empty,
    );
    if let Some(traceparent) = &context.traceparent {
        parm_transport::trace::adopt(&span, traceparent);
    }
    span
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
    if let Some(traceparent) = &context.traceparent {
        parm_transport::trace::adopt(&span, traceparent);
    }
    span
}

/// The span of a job, a child of its first query's; those of its other queries are linked.
pub(super) fn job(launch: &Launch) -> Span {
    let queries = launch.task.queries();
    let Some(first) = queries.first() else { return Span::none() };
    if first.inputs.span.is_disabled() {
        return Span::none();
    }
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        parent: &first.inputs.span,
        "job",
        job = launch.job.0,
        role = ?launch.role,
        instance = %launch.instance.name,
        rows = launch.task.rows(),
    );
    for other in &queries[1..] {
        span.follows_from(&other.inputs.span);
    }
    span
}

/// The header that makes the instance's spans children of this one.
pub(super) fn header(span: &Span) -> Option<String> {
    parm_transport::trace::traceparent(span)
}
