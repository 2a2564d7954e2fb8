//! The server.

mod address;
mod auth;
mod config;
mod grpc;
mod shared;
mod status;
mod upgrade;

pub use address::Address;
pub use config::{Config, Credential, Scope};
pub(crate) use upgrade::Offer;
