//! Imitates a Kubernetes API server for one Service: a list of EndpointSlices.

use super::upstream::{Upstream, say};

/// Answers lists with this status and these slices.
pub fn start(status: u16, slices: &str) -> Upstream {
    let body = match status {
        200 => format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{slices}]}}"#),
        _ => r#"{"kind": "Status", "message": "as the test wants it"}"#.to_owned(),
    };
    Upstream::start(move |_, stream| say(stream, &format!("{status} So"), &body))
}
