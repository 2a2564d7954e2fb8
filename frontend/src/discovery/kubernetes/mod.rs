//! Workers behind a Service of Kubernetes, followed through its EndpointSlices.
//!
//! Problem: DNS provides only addresses, as old as its caches. The API server reports at once which node a pod runs on,
//! that a pod is terminating, and that a new one exists.
//!
//! Choice: a list, then a watch from the list's version, with hand-written requests over the HTTP client that is linked
//! anyway. The endpoints form a `Census`, and the members are made to match it. Any doubt (an expired version, an
//! unreadable line, three consecutive failures) leads to another list. So does an interval, because a list shows what a
//! watch lost. If the API server is unavailable nothing changes: known workers continue, and health checks find dead
//! ones.
//!
//! Readiness in Kubernetes is not decisive either. The frontend's own health checks are as good and faster, and if a
//! node is cut off from the control plane, all its pods are "not ready" while they serve. A pod that *becomes* ready is
//! checked at once. A terminating pod receives no more work and finishes its jobs, because termination cannot be
//! undone. If all pods are terminating, those that still serve stay in use, as in kube-proxy.
//!
//! Rejected: a client library (a hundred crates for two requests); Endpoints (limited to 1000, without zones); pods
//! (which need wider permissions and say less about the Service).
//!
//! Reading order: `service` (the configured address), `config` (the API server), `slice` and `watch_line` (its responses),
//! `census` (the merged endpoints), `error` (errors); `api` makes requests, `follower` retries, `membership` changes
//! the fleet.

mod api;
mod census;
mod config;
mod error;
mod follower;
mod membership;
mod service;
mod slice;
mod watch_line;

pub use api::ApiServer;
pub use config::Config;
pub use error::Trouble;
pub(super) use follower::follow;
pub use service::Service;
pub use watch_line::survives;
