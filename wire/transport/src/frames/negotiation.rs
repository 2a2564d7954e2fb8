//! What the two sides say over HTTP before the first frame.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Config;

/// Where to ask for frames: `GET` with `connection: upgrade` and `upgrade: parm-frames/1`.
pub const PATH: &str = "/v2/frames";

/// The protocol's name and version in the `upgrade` header. A change that older peers cannot read is a new version.
pub const PROTOCOL: &str = "parm-frames/1";

/// Listed among the extensions of `GET /v2` by a server that offers frames.
pub const EXTENSION: &str = "parm_frames";

const MAX_BODY: HeaderName = HeaderName::from_static("parm-frames-max-body");
const MAX_IN_FLIGHT: HeaderName = HeaderName::from_static("parm-frames-max-in-flight");

/// Says `1` where tokens are known: a client that sends it takes part, and a server that answers with it gives some. Peers
/// that do not know it neither ask nor are told.
pub const TOKENS: HeaderName = HeaderName::from_static("parm-frames-tokens");

/// Says `1` where a server knows shares: requests and reservations may name one there.
const SHARES: HeaderName = HeaderName::from_static("parm-frames-shares");

/// What a server accepts, told in the headers of its `101 Switching Protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Largest body of a frame.
    pub max_body_bytes: u32,
    /// Requests in progress on the connection.
    pub max_in_flight: u32,
    /// It gives tokens to those who take part.
    pub tokens: bool,
    /// It knows shares.
    pub shares: bool,
}

impl Negotiated {
    /// A server's limits.
    pub fn of(config: &Config) -> Self {
        Self {
            max_body_bytes: config.max_body_bytes.get(),
            max_in_flight: config.max_in_flight.get(),
            tokens: false,
            shares: true,
        }
    }

    /// Reads a server's limits; a server that names none is taken to have none.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u32>().ok();
        Self {
            max_body_bytes: number(MAX_BODY).unwrap_or(u32::MAX),
            max_in_flight: number(MAX_IN_FLIGHT).unwrap_or(u32::MAX).max(1),
            tokens: offers_tokens(headers),
            shares: headers.get(SHARES).is_some_and(|value| value == "1"),
        }
    }

    /// The headers that tell them.
    pub fn headers(&self) -> [(HeaderName, HeaderValue); 3] {
        [
            (MAX_BODY, self.max_body_bytes.into()),
            (MAX_IN_FLIGHT, self.max_in_flight.into()),
            (SHARES, u16::from(self.shares).into()),
        ]
    }
}

/// Whether a peer's headers say that it knows tokens.
pub fn offers_tokens(headers: &HeaderMap) -> bool {
    headers.get(TOKENS).is_some_and(|value| value == "1")
}
