//! Limits of a connection of frames, and their negotiation over HTTP before the first frame.

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::Budget;
use crate::keys::Caller;

/// Limits of one connection between a frontend and a worker.
///
/// No file can set them: they are constants outside of tests, but for those that follow other settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest frame body, read or written: the most that a peer can make this process reserve for a connection. A server
    /// takes `server.max_body_bytes`.
    pub max_body_bytes: NonZeroU32,
    /// Requests in progress on one connection. More are rejected as overload: a client that queues requests should know that
    /// they wait.
    pub max_in_flight: NonZeroU32,
    /// Bytes that may wait to be written on one connection. A server over the limit reads no more requests, and a client
    /// rejects more (backpressure): a peer that does not read cannot fill the memory. Two answers of the largest usual size
    /// fit.
    pub max_queued_bytes: NonZeroUsize,
    /// Timeout for a frame's body, so that a slow sender does not hold its memory for ever. A server takes
    /// `server.body_timeout_ms`.
    pub body_timeout: Duration,
    /// Timeout for a client to take an answer before the server closes the connection. A server takes
    /// `server.answer_timeout_ms`.
    pub answer_timeout: Duration,
    /// Silence before a ping.
    pub ping_interval: Duration,
    /// Timeout for any byte from the peer after a ping. It is longer than the longest pause of a process, as every request
    /// of the connection fails when it expires.
    pub ping_timeout: Duration,
}

/// Limits of a server's connection: its configuration, the state that all connections share, and its caller.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) config: Config,
    /// The byte budget of all connections' requests.
    pub(crate) budget: Arc<Budget>,
    pub(crate) caller: Caller,
    /// Age at which the connection ends, once its requests are answered.
    pub(crate) age: Option<Duration>,
    /// Whether the client asks for grants.
    pub(crate) grants: bool,
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

/// The path of the upgrade: `GET` with `connection: upgrade` and `upgrade: parm-frames/2`.
pub(crate) const PATH: &str = "/v2/frames";

/// The protocol's name and version in the `upgrade` header. A change that older peers cannot read is a new version.
pub(crate) const PROTOCOL: &str = "parm-frames/2";

/// The extension in `GET /v2` of a server that offers frames.
pub(crate) const EXTENSION: &str = "parm_frames";

/// The header of [`Negotiated`], as JSON.
const TERMS: HeaderName = HeaderName::from_static("parm-frames");

/// What both sides say when they agree on frames: a server its limits, in `101 Switching Protocols`, and a client whether it asks
/// for grants. What is missing is unlimited, or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Negotiated {
    pub(crate) max_body_bytes: u32,
    pub(crate) max_in_flight: NonZeroU32,
    /// A client that says so asks for grants, and a server that says so grants its room. Other peers receive no messages of
    /// grants.
    pub(crate) grants: bool,
    /// Jobs that the server runs at a time, if it states them.
    pub(crate) slots: Option<NonZeroU16>,
}

impl Default for Negotiated {
    fn default() -> Self {
        Self { max_body_bytes: u32::MAX, max_in_flight: NonZeroU32::MAX, grants: false, slots: None }
    }
}

impl Negotiated {
    pub(crate) fn of(config: &Config) -> Self {
        let (max_body_bytes, max_in_flight) = (config.max_body_bytes.get(), config.max_in_flight);
        Self { max_body_bytes, max_in_flight, ..Self::default() }
    }

    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let said = headers.get(TERMS).and_then(|value| serde_json::from_slice(value.as_bytes()).ok());
        said.unwrap_or_default()
    }

    pub(crate) fn header(&self) -> (HeaderName, HeaderValue) {
        let said = serde_json::json!(self).to_string();
        (TERMS, said.try_into().expect("numbers in JSON are ASCII"))
    }
}
