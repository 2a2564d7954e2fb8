//! Settings of a client.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Token;
use crate::frames;
use crate::tls::Tls;

/// Connections to other servers.
///
/// The fields that no file can set are constants outside of tests: they fit every network that a fleet runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Protocol for `http://` and `unix:` addresses. Default `auto`.
    pub transport: Prefer,
    /// Encoding of tensors over HTTP. Set `json` for servers without the binary tensor extension. Default `binary`.
    pub tensors: Tensors,
    /// Key sent to the servers as `authorization: Bearer KEY`. Its role is `infer`, or `control` to load models. Default:
    /// none.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
    /// Timeout to connect: within a data centre a connection takes milliseconds, and a lost packet is sent again after a second.
    #[serde(skip)]
    pub connect_timeout: Duration,
    /// Timeout for readiness, metadata and configuration.
    #[serde(skip)]
    pub control_timeout: Duration,
    /// Timeout for a server to load or unload a model. It loads on after that.
    #[serde(skip)]
    pub load_timeout: Duration,
    /// Backoff after the first failure to connect; it doubles with every further failure. Requests fail meanwhile.
    #[serde(skip)]
    pub backoff_initial: Duration,
    /// Longest backoff: a server that comes back is found this late.
    #[serde(skip)]
    pub backoff_max: Duration,
    /// HTTP connections to one server, each with one request at a time. More requests are rejected as overload. Default
    /// 256.
    // Health checks and metadata have a few connections of their own.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_connections: NonZeroU32,
    /// Largest body of an answer over HTTP and gRPC. See [`accept_bodies`](Self::accept_bodies).
    #[serde(skip)]
    pub max_body_bytes: NonZeroUsize,
    /// Limits of a connection of the framed transport.
    #[serde(skip)]
    pub frames: frames::Config,
    /// TLS, set by the code that read its files.
    #[serde(skip)]
    pub tls: Tls,
    /// Servers that get requests outside of the protocol, set by the code that knows their routes.
    #[serde(skip)]
    pub upstream: UpstreamConfig,
}

/// Facts about upstream servers, which they do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Names of the routes of a server that is reached over HTTP/1.1. Each is a model of it.
    pub routes: Arc<[String]>,
    /// The same of a server that is reached over HTTP/2.
    pub over_http2: Arc<[String]>,
    /// Path of health checks. Any answer means that the server works, except a status from 500 without a gRPC status.
    pub probe: Arc<str>,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self { routes: Arc::new([]), over_http2: Arc::new([]), probe: "/health".into() }
    }
}

/// The protocol for an address that leaves it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// The framed transport if `GET /v2` lists it, otherwise HTTP.
    #[default]
    Auto,
    /// HTTP only.
    Http,
}

/// The encoding of tensors over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tensors {
    /// The binary tensor extension.
    #[default]
    Binary,
    /// JSON numbers.
    Json,
}

impl Config {
    /// Accepts answers up to this size: a process that takes larger requests gets larger answers to them as well.
    pub fn accept_bodies(&mut self, bytes: NonZeroUsize) {
        self.max_body_bytes = self.max_body_bytes.max(bytes);
        let frame = NonZeroU32::try_from(bytes).unwrap_or(NonZeroU32::MAX);
        self.frames.max_body_bytes = self.frames.max_body_bytes.max(frame);
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: Prefer::Auto,
            tensors: Tensors::Binary,
            token: None,
            connect_timeout: Duration::from_secs(1),
            control_timeout: Duration::from_secs(5),
            load_timeout: Duration::from_secs(300),
            backoff_initial: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            max_connections: const { NonZeroU32::new(256).unwrap() },
            max_body_bytes: const { NonZeroUsize::new(64 << 20).unwrap() },
            frames: frames::Config::default(),
            tls: Tls::default(),
            upstream: UpstreamConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_accepts_larger_bodies_and_never_smaller_ones() {
        let usual = Config::default();
        let mut client = usual.clone();
        client.accept_bodies(NonZeroUsize::MIN);
        assert_eq!(client, usual);
        let large = const { NonZeroUsize::new(1 << 30).unwrap() };
        client.accept_bodies(large);
        assert_eq!((client.max_body_bytes, client.frames.max_body_bytes.get()), (large, 1 << 30));
        client.accept_bodies(const { NonZeroUsize::new(1 << 40).unwrap() });
        assert_eq!(client.frames.max_body_bytes, NonZeroU32::MAX, "a frame cannot be larger");
    }
}
