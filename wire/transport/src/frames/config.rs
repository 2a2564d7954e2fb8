//! Limits of a connection of frames.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parm_durations::Whole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Budget;
use crate::keys::Caller;

/// Limits of one connection between a frontend and a worker.
///
/// The fields that no file can set are constants outside of tests, but for those that follow other settings of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Largest frame body, read or written: the most that a peer can make this process reserve for a connection. A server
    /// takes `server.max_body_bytes`.
    #[serde(skip)]
    pub max_body_bytes: NonZeroU32,
    /// Requests in progress on one connection. More are rejected as overload. Default 1024.
    // A client that queues requests should know that they wait.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_in_flight: NonZeroU32,
    /// Bytes that may wait to be written on one connection. A server over the limit reads no more requests, and a client
    /// rejects more (backpressure): a peer that does not read cannot fill the memory. Two answers of the largest usual size
    /// fit.
    #[serde(skip)]
    pub max_queued_bytes: NonZeroUsize,
    /// Timeout for a frame's body, so that a slow sender does not hold its memory for ever. A server takes
    /// `server.body_timeout_ms`.
    #[serde(skip)]
    pub body_timeout: Duration,
    /// Timeout for a client to take an answer before the server closes the connection. A server takes
    /// `server.answer_timeout_ms`.
    #[serde(skip)]
    pub answer_timeout: Duration,
    /// Silence before a ping.
    #[serde(skip)]
    pub ping_interval: Duration,
    /// Timeout for any byte from the peer after a ping. It is longer than the longest pause of a process, as every request
    /// of the connection fails when it expires.
    #[serde(skip)]
    pub ping_timeout: Duration,
}

/// Limits of a server's connection: its configuration, the state that all connections share, and its caller.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limits of the connection itself.
    pub config: Config,
    /// The byte budget of all connections' requests.
    pub budget: Arc<Budget>,
    /// The caller of its requests.
    pub caller: Caller,
    /// Age at which the connection ends, once its requests are answered.
    pub age: Option<Duration>,
    /// Whether the client asks for grants.
    pub grants: bool,
}

impl From<Config> for Limits {
    /// A connection with its own byte budget, for any caller.
    fn from(config: Config) -> Self {
        let whole = config.max_body_bytes.get() as usize * config.max_in_flight.get() as usize;
        Self { config, budget: Budget::new(whole), caller: Caller::default(), age: None, grants: false }
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
