//! Headers that state how a client addressed a request for upstream servers. The server of the request always writes them
//! itself, so their values are true.

use http::HeaderName;

/// The host that the client addressed, with its port if it stated one.
pub const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The scheme of the client's connection: `http` or `https`.
pub const SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");
