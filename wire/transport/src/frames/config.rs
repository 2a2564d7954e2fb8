//! Limits of a connection of frames.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parm_durations::{PositiveMillis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Budget;
use crate::keys::Caller;

/// Bounds of one connection; both sides have their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Largest frame body in bytes, read or written (default 67108864, that is 64 MiB). A peer can make us reserve
    /// this much per connection.
    pub max_body_bytes: NonZeroU32,
    /// Requests in progress on one connection (default 1024). More are refused as overload: whoever queues should
    /// know about it.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_in_flight: NonZeroU32,
    /// Bytes waiting to be written (default 134217728, that is 128 MiB). A client refuses more requests beyond it, a
    /// server reads no more of them, so a peer that does not read cannot fill our memory.
    #[serde(with = "Whole::<1, 1_099_511_627_776>")]
    pub max_queued_bytes: NonZeroUsize,
    /// Milliseconds that a frame's body may take to arrive (default 30000): a peer that dribbles bytes does not hold
    /// what it announced for ever.
    #[serde(rename = "body_timeout_ms", with = "PositiveMillis")]
    pub body_timeout: Duration,
    /// Milliseconds that a client may take over an answer before a server closes the connection (default 60000): one
    /// that does not read does not hold its answers for ever.
    #[serde(rename = "answer_timeout_ms", with = "PositiveMillis")]
    pub answer_timeout: Duration,
    /// Milliseconds of silence before the peer is asked whether it lives (default 1000).
    #[serde(rename = "ping_interval_ms", with = "PositiveMillis")]
    pub ping_interval: Duration,
    /// Milliseconds that the peer has to say anything after that (default 5000): longer than its longest pause,
    /// since every request on the connection fails when this passes. Bytes of a frame that is under way count.
    #[serde(rename = "ping_timeout_ms", with = "PositiveMillis")]
    pub ping_timeout: Duration,
}

/// Limits of a server's connection: its configuration, the state that all connections share, and its caller.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The connection's own.
    pub config: Config,
    /// The byte budget of all connections' requests.
    pub budget: Arc<Budget>,
    /// The caller of its requests.
    pub caller: Caller,
    /// When the connection ends, once its requests are answered.
    pub age: Option<Duration>,
    /// Whether the client uses tokens.
    pub tokens: bool,
}

impl From<Config> for Limits {
    /// A connection with its own byte budget, for any caller.
    fn from(config: Config) -> Self {
        let whole = config.max_body_bytes.get() as usize * config.max_in_flight.get() as usize;
        Self { config, budget: Budget::new(whole), caller: Caller::default(), age: None, tokens: false }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_body_bytes: const { NonZeroU32::new(64 << 20).unwrap() },
            max_in_flight: const { NonZeroU32::new(1024).unwrap() },
            max_queued_bytes: const { NonZeroUsize::new(128 << 20).unwrap() },
            body_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(60),
            ping_interval: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(5),
        }
    }
}
