//! The Open Inference Protocol on sockets: a server, clients, and frames.
//!
//! Frontend and workers serve the same protocol, so there is one [`server`], generic over
//! [`InferenceService`](parm_protocol::InferenceService). A [`Client`](parm_protocol::client::Client) speaks HTTP, with
//! [`frames`] for predictions where the server offers them, or gRPC, or passes requests on to an upstream server. [`listening`]
//! serves every address and limits its connections, [`keys`] controls access to routes, and [`tls`] encrypts.

mod begun;
mod budget;
pub mod client;
mod end_to_end;
pub mod frames;
pub mod grpc;
pub mod keys;
pub mod listening;
mod routes;
#[cfg(test)]
mod scripted;
pub mod server;
mod settling;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod trace;

pub use budget::Budget;
pub use settling::{FileFault, Settling};
