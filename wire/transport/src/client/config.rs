//! Settings of a client.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use parm_durations::{PositiveMillis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Token;
use crate::frames;
use crate::tls::Tls;

/// A client's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What to speak on an `http://` or `unix:` address (default `auto`: frames where the server offers them, else
    /// HTTP).
    pub transport: Prefer,
    /// How tensors travel over HTTP (default `binary`; `json` for servers without the binary tensor extension).
    pub tensors: Tensors,
    /// The key that the workers ask for, sent as `authorization: Bearer KEY`: of the role `infer`, or `control` where models
    /// are loaded and unloaded through the frontend (default: none). Left out of a dumped configuration.
    #[serde(skip_serializing)]
    pub token: Option<Token>,
    /// Milliseconds to connect (default 1000).
    #[serde(rename = "connect_timeout_ms", with = "PositiveMillis")]
    pub connect_timeout: Duration,
    /// Milliseconds for questions other than inference: readiness, metadata, configuration (default 5000).
    #[serde(rename = "control_timeout_ms", with = "PositiveMillis")]
    pub control_timeout: Duration,
    /// Milliseconds for a server to load or unload a model (default 300000): it answers once a model of gigabytes is
    /// read and warmed up.
    #[serde(rename = "load_timeout_ms", with = "PositiveMillis")]
    pub load_timeout: Duration,
    /// Milliseconds after a failed attempt to connect before the next; doubled from failure to failure (default 10).
    /// Requests in between fail at once.
    #[serde(rename = "backoff_initial_ms", with = "PositiveMillis")]
    pub backoff_initial: Duration,
    /// Most milliseconds between two attempts to connect (default 1000): a server that comes back is found this late.
    #[serde(rename = "backoff_max_ms", with = "PositiveMillis")]
    pub backoff_max: Duration,
    /// HTTP connections, each with one request at a time (default 256). More requests are refused as overload.
    /// Questions about health and models have a few of their own beside these.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_connections: NonZeroU32,
    /// Largest body of an answer in bytes over HTTP and gRPC (default 67108864, that is 64 MiB).
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_body_bytes: NonZeroUsize,
    /// Bounds of a connection of frames.
    pub frames: frames::Config,
    /// TLS: set by who read its files, and in no configuration of a client's own.
    #[serde(skip)]
    pub tls: Tls,
}

/// What to speak where the address leaves it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// Frames where `GET /v2` lists them, else HTTP.
    #[default]
    Auto,
    /// HTTP, whatever else is offered.
    Http,
}

/// How tensors travel over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tensors {
    /// The binary tensor extension.
    #[default]
    Binary,
    /// JSON numbers.
    Json,
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
        }
    }
}
