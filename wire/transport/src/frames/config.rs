//! Limits of a connection of frames, and their negotiation over HTTP before the first frame.

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

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

/// The path of the upgrade: `GET` with `connection: upgrade` and `upgrade: parm-frames/1`.
pub(crate) const PATH: &str = "/v2/frames";

/// The protocol's name and version in the `upgrade` header. A change that older peers cannot read is a new version.
pub(crate) const PROTOCOL: &str = "parm-frames/1";

/// The extension in `GET /v2` of a server that offers frames.
pub(crate) const EXTENSION: &str = "parm_frames";

const MAX_BODY: HeaderName = HeaderName::from_static("parm-frames-max-body");
const MAX_IN_FLIGHT: HeaderName = HeaderName::from_static("parm-frames-max-in-flight");

/// `1` if the peer supports grants: a client that sends it asks for them, a server that returns it grants its room. Other peers
/// neither send it nor receive messages of grants.
pub(crate) const GRANTS: HeaderName = HeaderName::from_static("parm-frames-grants");

/// Jobs that a server with grants runs at a time.
const SLOTS: HeaderName = HeaderName::from_static("parm-frames-slots");

/// The limits of a server, in the headers of its `101 Switching Protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) max_body_bytes: u32,
    pub(crate) max_in_flight: u32,
    /// Whether it grants its room to clients that ask.
    pub(crate) grants: bool,
    /// Jobs that it runs at a time, if it states them.
    pub(crate) slots: Option<NonZeroU16>,
}

impl Negotiated {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            max_body_bytes: config.max_body_bytes.get(),
            max_in_flight: config.max_in_flight.get(),
            grants: false,
            slots: None,
        }
    }

    /// Reads a server's limits; a missing limit means none.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u32>().ok();
        Self {
            max_body_bytes: number(MAX_BODY).unwrap_or(u32::MAX),
            max_in_flight: number(MAX_IN_FLIGHT).unwrap_or(u32::MAX).max(1),
            grants: offers_grants(headers),
            slots: headers.get(SLOTS).and_then(|value| value.to_str().ok()?.parse().ok()),
        }
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let limits = [(MAX_BODY, self.max_body_bytes.into()), (MAX_IN_FLIGHT, self.max_in_flight.into())];
        limits.into_iter().chain(self.slots.map(|slots| (SLOTS, slots.get().into())))
    }
}

pub(crate) fn offers_grants(headers: &HeaderMap) -> bool {
    headers.get(GRANTS).is_some_and(|value| value == "1")
}
