//! Negotiation over HTTP before the first frame.

use std::num::NonZeroU16;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Config;

/// The path of the upgrade: `GET` with `connection: upgrade` and `upgrade: parm-frames/1`.
pub const PATH: &str = "/v2/frames";

/// The protocol's name and version in the `upgrade` header. A change that older peers cannot read is a new version.
pub const PROTOCOL: &str = "parm-frames/1";

/// The extension in `GET /v2` of a server that offers frames.
pub const EXTENSION: &str = "parm_frames";

const MAX_BODY: HeaderName = HeaderName::from_static("parm-frames-max-body");
const MAX_IN_FLIGHT: HeaderName = HeaderName::from_static("parm-frames-max-in-flight");

/// `1` if the peer supports grants: a client that sends it asks for them, a server that returns it grants its room. Other peers
/// neither send it nor receive messages of grants.
pub const GRANTS: HeaderName = HeaderName::from_static("parm-frames-grants");

/// `1` if a server supports shares: requests may name one.
const SHARES: HeaderName = HeaderName::from_static("parm-frames-shares");

/// Jobs that a server with grants runs at a time.
const SLOTS: HeaderName = HeaderName::from_static("parm-frames-slots");

/// The limits of a server, in the headers of its `101 Switching Protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Largest body of a frame.
    pub max_body_bytes: u32,
    /// Requests in progress on the connection.
    pub max_in_flight: u32,
    /// Whether it grants its room to clients that ask.
    pub grants: bool,
    /// Whether it supports shares.
    pub shares: bool,
    /// Jobs that it runs at a time, if it states them.
    pub slots: Option<NonZeroU16>,
}

impl Negotiated {
    /// A server's limits.
    pub fn of(config: &Config) -> Self {
        Self {
            max_body_bytes: config.max_body_bytes.get(),
            max_in_flight: config.max_in_flight.get(),
            grants: false,
            shares: true,
            slots: None,
        }
    }

    /// Reads a server's limits; a missing limit means none.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u32>().ok();
        Self {
            max_body_bytes: number(MAX_BODY).unwrap_or(u32::MAX),
            max_in_flight: number(MAX_IN_FLIGHT).unwrap_or(u32::MAX).max(1),
            grants: offers_grants(headers),
            shares: headers.get(SHARES).is_some_and(|value| value == "1"),
            slots: headers.get(SLOTS).and_then(|value| value.to_str().ok()?.parse().ok()),
        }
    }

    /// The headers with the limits.
    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let limits = [
            (MAX_BODY, self.max_body_bytes.into()),
            (MAX_IN_FLIGHT, self.max_in_flight.into()),
            (SHARES, u16::from(self.shares).into()),
        ];
        limits.into_iter().chain(self.slots.map(|slots| (SLOTS, slots.get().into())))
    }
}

/// Whether a peer's headers offer grants.
pub fn offers_grants(headers: &HeaderMap) -> bool {
    headers.get(GRANTS).is_some_and(|value| value == "1")
}
