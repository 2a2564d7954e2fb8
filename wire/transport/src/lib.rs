//! The Open Inference Protocol on sockets: one server, one client for each transport, and frames.
//!
//! Frontend and workers speak the same protocol north and south, so there is ONE [`server`], generic over
//! [`InferenceService`](parm_protocol::InferenceService), and behind [`Client`](parm_protocol::client::Client) one
//! implementation for each of HTTP, gRPC and [`frames`]. Every address is served by
//! [`listening`], which bounds its connections. [`keys`] says which caller may have which route, and [`tls`] keeps third parties
//! from reading along.

mod budget;
pub mod client;
pub mod frames;
pub mod grpc;
pub mod keys;
pub mod listening;
#[cfg(test)]
mod scripted;
pub mod server;
mod settling;
pub mod tls;
pub mod trace;
mod unread;

pub use budget::Budget;
pub use settling::Settling;
