//! Addresses of the server and the limits of its clients.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parm_durations::{Millis, PositiveMillis, PositiveSeconds, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::Address;
use crate::listening::ConnectionLimits;
use crate::{Budget, frames};

/// Addresses and limits of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address for HTTP clients; port 0 takes a free one (default 127.0.0.1:8000).
    pub http: Address,
    /// Address for gRPC clients (default 127.0.0.1:8001).
    pub grpc: Address,
    /// Address of Prometheus metrics, `GET /metrics` (default 127.0.0.1:8002).
    pub metrics: Address,
    /// Unix socket for HTTP clients beside the address (default: none). A stale socket file is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// Largest request body in bytes (default 67108864, that is 64 MiB), and the most that its tensors may take when they
    /// are read: what one request may make the server hold.
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_body_bytes: NonZeroUsize,
    /// Bytes that requests and the answers that clients have not taken yet hold at a time, all connections together
    /// (default 1073741824, that is 1 GiB); what goes beyond is refused as overload. Never less than one body of
    /// `max_body_bytes`.
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_bytes_in_flight: NonZeroUsize,
    /// Connections at a time, all listeners together (default 16384); more wait in the kernel's queue. A connection costs
    /// a file descriptor and a few kilobytes.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_connections: NonZeroUsize,
    /// HTTP/2 streams in progress on one connection (default 1024).
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_streams: NonZeroU32,
    /// Milliseconds that a connection may take to send a request's head (default 10000): a client that dribbles
    /// bytes does not hold its connection for ever.
    #[serde(rename = "head_timeout_ms", with = "PositiveMillis")]
    pub head_timeout: Duration,
    /// Milliseconds that a request's body may take to arrive (default 30000).
    #[serde(rename = "body_timeout_ms", with = "PositiveMillis")]
    pub body_timeout: Duration,
    /// Milliseconds that a client may take over an answer before its connection is closed (default 60000): one that does
    /// not read, or a byte now and then, does not hold the answer for ever. A slow link needs a second for every
    /// megabyte of the largest answer.
    #[serde(rename = "answer_timeout_ms", with = "PositiveMillis")]
    pub answer_timeout: Duration,
    /// Milliseconds that a connection may be idle (default 300000).
    #[serde(rename = "idle_timeout_ms", with = "PositiveMillis")]
    pub idle_timeout: Duration,
    /// Milliseconds that a connection lives, a tenth more or less so that not all end together (default 0: as long as it is
    /// used). Then it ends once its requests are answered, and no request is lost: what was settled when it was made, such
    /// as the instance that a balancer chose, is settled anew this often.
    #[serde(rename = "max_connection_age_ms", with = "Millis")]
    pub max_connection_age: Duration,
    /// Milliseconds between readiness going false and the end of listening, so that balancers look away first
    /// (default 500).
    #[serde(rename = "drain_delay_ms", with = "Millis")]
    pub drain_delay: Duration,
    /// Milliseconds that requests in progress have to finish after that (default 20000): Kubernetes kills 30 s after its
    /// signal, and a connection that is cut by us is at least in the log.
    #[serde(rename = "drain_timeout_ms", with = "PositiveMillis")]
    pub drain_timeout: Duration,
    /// Seconds that clients are told to wait after a refusal for load where the service does not say (default 1).
    #[serde(rename = "retry_after_s", with = "PositiveSeconds")]
    pub retry_after: Duration,
    /// A file of the keys that callers must send, with what each is for, which is read again when it changes
    /// (default: none). Without it everyone may ask for predictions. `parm keys new` makes keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_file: Option<PathBuf>,
    /// Who may load and unload models where no keys are asked for (default `local`).
    pub model_control: ModelControl,
    /// The framed transport that our own frontends choose.
    pub frames: frames::Config,
}

/// Who may load and unload models without a key. A frontend passes such orders on to its whole fleet, so one
/// request of a stranger could end a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelControl {
    /// Who reaches the server over a loopback address or its Unix socket.
    #[default]
    Local,
    /// Nobody.
    Nobody,
}

impl Config {
    /// Limits of the connections of clients' addresses.
    pub(super) fn limits(&self) -> ConnectionLimits {
        let clients = ConnectionLimits::clients();
        ConnectionLimits {
            // A head begins with its first byte.
            first_byte: clients.first_byte.min(self.head_timeout),
            head: self.head_timeout,
            idle: self.idle_timeout,
            answer: self.answer_timeout,
            age: self.max_connection_age,
            drain: self.drain_timeout,
            streams: self.max_streams,
            ..clients
        }
    }

    /// The byte budget of all bodies: a single one of the largest size must fit.
    pub(super) fn budget(&self) -> Arc<Budget> {
        let largest = self.max_body_bytes.get().max(self.frames.max_body_bytes.get() as usize);
        Budget::new(self.max_bytes_in_flight.get().max(largest))
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
            max_streams: const { NonZeroU32::new(1024).unwrap() },
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            max_connection_age: Duration::ZERO,
            drain_delay: Duration::from_millis(500),
            drain_timeout: Duration::from_secs(20),
            retry_after: Duration::from_secs(1),
            keys_file: None,
            model_control: ModelControl::Local,
            frames: frames::Config::default(),
        }
    }
}
