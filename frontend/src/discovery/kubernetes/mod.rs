//! Workers behind a Service of Kubernetes, followed through its EndpointSlices.
//!
//! Problem: DNS provides only addresses, as old as its caches. The API server knows which node a pod runs on, that a pod is
//! terminating, and that a new one exists.
//!
//! Choice: the slices are listed every two seconds, from the API server's cache, with hand-written requests over the HTTP client
//! that is linked anyway. The frontend checks the health of each pod more often than that.
//!
//! Readiness in Kubernetes is not decisive. The frontend's own health checks are as good and faster, and if a node is cut off
//! from the control plane, all its pods are "not ready" while they serve. A pod that *becomes* ready is checked at once.
//!
//! Rejected: a watch, which reports a change two seconds sooner, and needs rules for lines, versions, lost connections and a
//! periodic list that shows what it lost; a client library (a hundred crates for one request); pages of lists; Endpoints (limited
//! to 1000, without zones); pods (which need wider permissions and say less about the Service).
//!
//! Reading order: `service` (the configured address), `slices` (the response, and the merged endpoints), `api` (requests).

mod api;
mod service;
mod slices;

pub use api::{ApiServer, Config};
pub(super) use api::{EVERY, Endpoints};
pub use service::Service;
pub use slices::survives;
