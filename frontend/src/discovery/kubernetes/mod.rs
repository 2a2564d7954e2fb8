//! Workers behind a Service of Kubernetes, followed through its EndpointSlices.
//!
//! Problem: DNS provides only addresses, as old as its caches. The API server reports at once which node a pod runs on,
//! that a pod is terminating, and that a new one exists.
//!
//! Choice: a list, then a watch from the list's version, with hand-written requests over the HTTP client that is linked
//! anyway. The endpoints form a `Census`, and the members are made to match it. After a minute, and after any failure, it
//! begins anew with a list, which shows what a watch lost. If the API server is unavailable nothing changes: known workers
//! continue, and health checks find dead ones.
//!
//! Readiness in Kubernetes is not decisive either. The frontend's own health checks are as good and faster, and if a
//! node is cut off from the control plane, all its pods are "not ready" while they serve. A pod that *becomes* ready is
//! checked at once. A terminating pod receives no more work and finishes its jobs, because termination cannot be
//! undone. If all pods are terminating, those that still serve stay in use, as in kube-proxy.
//!
//! Rejected: continuing a watch from its last version, which needs bookmarks and rules for expired versions and saves a list a
//! minute; a client library (a hundred crates for two requests); pages of lists; Endpoints (limited to 1000, without zones); pods
//! (which need wider permissions and say less about the Service).
//!
//! Reading order: `service` (the configured address), `census` (the responses, and the merged endpoints), `api` (requests),
//! `follower` (retries). The members are those of `membership`, as of every source.

mod api;
mod census;
mod follower;
mod service;

pub use api::{ApiServer, Config, Trouble};
pub use census::survives;
pub(super) use follower::follow;
pub use service::Service;
