//! Addresses of the server and the limits of its clients.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parm_durations::{Millis, PositiveMillis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::listening::{ConnectionLimits, FIRST_BYTE};
use crate::{Budget, frames};

/// Addresses that clients reach, and limits of their connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address for HTTP clients; port 0 takes a free port. Default 127.0.0.1:8000.
    pub http: Address,
    /// Address for gRPC clients. Default 127.0.0.1:8001.
    pub grpc: Address,
    /// Address of Prometheus metrics, `GET /metrics`. Default 127.0.0.1:8002.
    pub metrics: Address,
    /// Unix socket for HTTP clients, next to the address. A stale socket file is replaced. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// Largest request body, and the most memory that its tensors may take. Raise it on frontends and workers together.
    /// Default 67108864.
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_body_bytes: NonZeroUsize,
    /// Memory for the requests and unread answers of all connections. More requests are rejected as overload. It is at
    /// least `max_body_bytes`. Default 1073741824.
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_bytes_in_flight: NonZeroUsize,
    /// Connections of all listeners together. More wait in the kernel's queue. Default 16384.
    // A connection costs a file descriptor and a few kilobytes.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_connections: NonZeroUsize,
    /// Timeout for the head of a request: a few kilobytes, on the slowest line. Slow clients must not hold connections for ever. The
    /// same holds for bodies and answers.
    #[serde(skip)]
    pub head_timeout: Duration,
    /// Timeout for the body of a request. Default 30000.
    #[serde(rename = "body_timeout_ms", with = "PositiveMillis")]
    pub body_timeout: Duration,
    /// Timeout for a client to read an answer. Slow links need a second for every megabyte. Default 60000.
    #[serde(rename = "answer_timeout_ms", with = "PositiveMillis")]
    pub answer_timeout: Duration,
    /// Timeout after which an idle connection is closed: longer than load balancers keep theirs, so that they close first.
    #[serde(skip)]
    pub idle_timeout: Duration,
    /// Lifetime of a connection; it then ends after its last answer. Set it if load balancers choose servers per
    /// connection. 0 means no limit. Default 0.
    // The lifetimes vary by a tenth, so that connections do not end together.
    #[serde(rename = "max_connection_age_ms", with = "Millis")]
    pub max_connection_age: Duration,
    /// Delay between failing readiness and closing the listeners, so that frontends and load balancers stop sending first.
    /// Default 2000: frontends check health once a second.
    #[serde(rename = "drain_delay_ms", with = "Millis")]
    pub drain_delay: Duration,
    /// Timeout for requests in progress after the listeners closed. Default 20000.
    // Kubernetes kills a process 30 s after its signal; a connection that we close is at least in the log.
    #[serde(rename = "drain_timeout_ms", with = "PositiveMillis")]
    pub drain_timeout: Duration,
    /// File of the keys that callers must send; changes apply at once. Without it every caller may request predictions.
    /// `parm keys new` makes keys. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_file: Option<PathBuf>,
    /// Callers that may load and unload models without a `keys_file`. Default `local`.
    pub model_control: ModelControl,
}

/// Callers that may load and unload models without a key. A frontend forwards such orders to its whole fleet, so one
/// request of a stranger could end a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelControl {
    /// Callers on a loopback address or the Unix socket.
    #[default]
    Local,
    /// No caller.
    Nobody,
}

impl Config {
    /// Limits of the connections of clients' addresses.
    pub(super) fn limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            // A head begins with its first byte.
            first_byte: FIRST_BYTE.min(self.head_timeout),
            head: self.head_timeout,
            idle: self.idle_timeout,
            body: self.body_timeout,
            // A body little larger than the limit gets the answer that says so.
            body_bytes: self.max_body_bytes.get().saturating_mul(2),
            answer: self.answer_timeout,
            age: self.max_connection_age,
            drain: self.drain_timeout,
            // A client with more opens a second connection; `max_bytes_in_flight` bounds the memory.
            streams: const { NonZeroU32::new(1024).unwrap() },
            // A pool reuses connections within seconds, and a request may be on its way on a younger one.
            spare: Duration::from_secs(10),
            send_buffer: None,
        }
    }

    /// Limits of connections of the framed transport: bodies and timeouts are as on other connections.
    pub(super) fn frames(&self) -> frames::Config {
        frames::Config {
            max_body_bytes: NonZeroU32::try_from(self.max_body_bytes).unwrap_or(NonZeroU32::MAX),
            body_timeout: self.body_timeout,
            answer_timeout: self.answer_timeout,
            ..frames::Config::default()
        }
    }

    /// The byte budget of all bodies: a single one of the largest size must fit.
    pub(super) fn budget(&self) -> Arc<Budget> {
        Budget::new(self.max_bytes_in_flight.get().max(self.max_body_bytes.get()))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            http: Address::local(8000),
            grpc: Address::local(8001),
            metrics: Address::local(8002),
            unix: None,
            max_body_bytes: const { NonZeroUsize::new(64 << 20).unwrap() },
            max_bytes_in_flight: const { NonZeroUsize::new(1 << 30).unwrap() },
            max_connections: const { NonZeroUsize::new(16_384).unwrap() },
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            max_connection_age: Duration::ZERO,
            drain_delay: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(20),
            keys_file: None,
            model_control: ModelControl::Local,
        }
    }
}

/// The address of a listener in text form, such as `127.0.0.1:8000` or `[::]:8000`. Names are not resolved: a listener must not depend on a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline)]
pub struct Address(pub SocketAddr);

impl Address {
    /// This port of the loopback interface; 0 takes a free port.
    pub const fn local(port: u16) -> Self {
        Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Address).map_err(|_| {
            format!(
                "'{text}' is not an address to listen on: use IP:PORT, such as 127.0.0.1:8000 or 0.0.0.0:8000"
            )
        })
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_the_limits_of_the_server() {
        let text = "max_body_bytes = 1000\nbody_timeout_ms = 7\nanswer_timeout_ms = 8";
        let frames = toml::from_str::<Config>(text).unwrap().frames();
        assert_eq!(frames.max_body_bytes.get(), 1000);
        let millis = [frames.body_timeout, frames.answer_timeout].map(|time| time.as_millis());
        assert_eq!(millis, [7, 8]);
        let unknown = toml::from_str::<Config>("[frames]\nmax_body_bytes = 1000").unwrap_err().to_string();
        assert!(unknown.contains("unknown field"), "{unknown}");
    }
}
