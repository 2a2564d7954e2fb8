//! Server in front of the instances: the dispatcher's tokio driver, discovery, admin API and metrics.
//!
//! [`Frontend`] serves the Open Inference Protocol and uses instances that speak it too, or passes requests on to servers of any kind
//! ([`upstreams`]). It does not depend on engines: an embedded instance is a [`Client`](parm_protocol::client::Client) like any other.

pub mod admin;
pub mod capture;
mod config;
mod console;
pub mod discovery;
mod error;
mod lifelines;
mod metrics;
pub mod record;
mod serve;
pub mod upstreams;

pub use config::{Config, Instances, Requests};
pub use error::Error;
pub use serve::{Dispatch, Frontend, Held, LoadNets, Outcome, Reloaded, Timers};
