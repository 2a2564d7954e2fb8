//! Spans of a request: one per query at the frontend, with one child per job.
//!
//! They have level `debug` and their own target, so without a collector they cost a load and a branch at each call
//! site.

use parm_protocol::{Context, OpaqueRequest};
use slotmap::Key;
use tracing::Span;
use tracing::field::Empty;

use super::attempt::{Job, Payload};

/// The span of a request, a child of the client's if it sent one. One for an upstream server has a method and a path, others have
/// an id.
pub(super) fn query(model: &str, id: &str, opaque: Option<&OpaqueRequest>, context: &Context) -> Span {
    let span = tracing::debug_span!(
        target: "parm_frontend::trace",
        "query",
        model,
        id = Some(id).filter(|_| opaque.is_none()),
        method = opaque.map(|request| request.method.as_str()),
        path = opaque.map(|request| request.target.path()),
        outcome = Empty,
    );
    if let Some(traceparent) = &context.traceparent {
        parm_transport::trace::adopt(&span, traceparent);
    }
    span
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
