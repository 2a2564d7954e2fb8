//! Workers behind a Service of Kubernetes, followed by its EndpointSlices.
//!
//! Problem: DNS tells addresses and nothing else, as old as its caches. Which machine a pod stands on, that it is about to
//! end, and that a new one is there, the API server tells at once.
//!
//! Choice: a list, then a watch from where the list was taken, by hand on the client that is linked anyway. What is seen is
//! a `Census`, and the fleet is made what it says. Whatever is in doubt (a watch that is too old, a line
//! that cannot be read, three failures in a row) ends in another list, and so does a lapse of time: a list shows what a
//! watch lost. An API server that is away changes nothing: workers that are known go on, and our own health checks tell
//! who is dead.
//!
//! Readiness as Kubernetes sees it decides nothing either. Our own look at a worker is as good and quicker, and where a
//! node is cut off from the control plane all of its pods are "not ready" while they serve. That a pod *became* ready is
//! worth a look at once. That it is terminating is believed: nobody takes that back, so it gets nothing more and ends what it
//! holds. Only where all of them are, those that still serve go on, as kube-proxy does it.
//!
//! Rejected: a client library (a hundred crates for two requests); Endpoints (they end at 1000 and know no zone); pods (they
//! want wider rights, and say less about the Service).
//!
//! Reading order: `service` is what the operator writes, `config` how the API server is reached, `slice` and `news` what
//! it says, `census` what that means, `trouble` what can go wrong; `api` asks, `following` keeps at it, `membership` changes the fleet.

mod api;
mod census;
mod config;
mod following;
mod membership;
mod news;
mod service;
mod slice;
mod trouble;

pub use api::ApiServer;
pub use config::Config;
pub(super) use following::follow;
pub use news::survives;
pub use service::Service;
pub use trouble::Trouble;
