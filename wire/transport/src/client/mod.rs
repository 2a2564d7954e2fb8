//! Clients over any of the transports, behind the one trait [`Client`].

mod config;
mod dial;
mod endpoint;
mod frames;
mod grpc;
mod http;
mod http1;
mod http2;
mod inquiry;
mod pool;
mod posts;
mod requests;
mod status;
#[cfg(test)]
mod tests;
mod upstream;

use std::sync::Arc;

pub use self::config::{Config, Prefer, Tensors, UpstreamConfig};
pub use self::endpoint::Endpoint;
pub use self::inquiry::{Hearing, Inquiry, Lines, Pipe};
pub use self::posts::{Arriving, Posts};
pub(crate) use self::requests::by_deadline;
pub use self::upstream::ROUTE;
pub use crate::keys::Token;

use parm_protocol::Error;
use parm_protocol::client::Client;

use self::dial::Dialer;
use self::endpoint::Scheme;
use self::frames::Frames;
use self::grpc::Grpc;
use self::http::Http;
use self::upstream::Upstream;

/// A client of the server at `endpoint`. Nothing is sent yet: an unreachable server shows in the first request. Must be
/// called within a tokio runtime.
pub fn connect(endpoint: &Endpoint, config: &Config) -> Result<Arc<dyn Client>, Error> {
    let dialer = Dialer::new(endpoint, config)?;
    let frames = |required| Some(Frames::new(config, required));
    Ok(match (endpoint.scheme, config.transport) {
        (Scheme::Grpc, _) => Arc::new(Grpc::new(dialer, config)?),
        (Scheme::Upstream, _) => Arc::new(Upstream::new(dialer, config, false)?),
        (Scheme::UpstreamHttp2, _) => Arc::new(Upstream::new(dialer, config, true)?),
        (Scheme::Frames, _) => Arc::new(Http::new(dialer, config, frames(true))?),
        (Scheme::Http, Prefer::Http) => Arc::new(Http::new(dialer, config, None)?),
        (Scheme::Http, Prefer::Auto) => Arc::new(Http::new(dialer, config, frames(false))?),
    })
}
