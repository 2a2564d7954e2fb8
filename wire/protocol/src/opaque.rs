//! Requests and answers whose bodies parm does not read.
//!
//! Every HTTP model server answers them. Placement, hedging, deadlines and ejection need only bytes.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use http_body::Body;

use crate::{Error, RequestStream};

/// The host that the client of a request for upstream servers addressed, with its port if it stated one. Like
/// [`FORWARDED_SCHEME`], the server of the request always writes it itself, so its value is true.
pub const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The scheme of the client's connection: `http` or `https`.
pub const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A request for an upstream server.
#[derive(Clone, Debug, PartialEq)]
pub struct OpaqueRequest {
    /// The method.
    pub method: Method,
    /// Path and query, unchanged.
    pub target: PathAndQuery,
    /// Headers, without those of the client's connection.
    pub headers: HeaderMap,
    /// The whole body; empty if the client may send more.
    pub body: Bytes,
    /// The body from its beginning on, if the client may send more.
    pub stream: Option<Arc<RequestStream>>,
    /// Whether a server may run it twice.
    pub repeatable: bool,
    /// Longest pause of an answer that has begun.
    pub stall: Duration,
}

/// An upstream server's answer.
#[derive(Debug)]
pub struct OpaqueAnswer {
    /// The status.
    pub status: StatusCode,
    /// Headers, without those of the server's connection.
    pub headers: HeaderMap,
    /// The body.
    pub body: OpaqueBody,
    /// The error that ended the body in its middle, once it has.
    pub broken: Broken,
}

/// The error of an answer that ended in its middle. A client may see it as an event or as trailers.
#[derive(Clone, Debug, Default)]
pub struct Broken(Arc<OnceLock<Error>>);

impl Broken {
    /// Notes the error; only the first counts.
    pub fn set(&self, error: Error) {
        let _ = self.0.set(error);
    }

    /// The error, if there is one.
    pub fn error(&self) -> Option<&Error> {
        self.0.get()
    }
}

/// The body of an answer.
pub enum OpaqueBody {
    /// All of it.
    Whole(Bytes),
    /// Its beginning, and the rest while it arrives.
    Begun(Bytes, RestOfBody),
}

/// The rest of a body. Dropping it cancels the request at the server.
pub type RestOfBody = Pin<Box<dyn Body<Data = Bytes, Error = Error> + Send>>;

/// An answer with its whole body, as part of an [`Error`]: the server failed, and the client should see how.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAnswer {
    /// The status.
    pub status: StatusCode,
    /// Headers, without those of the server's connection.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl FailedAnswer {
    /// Whether the server cannot serve now, as opposed to a model that failed.
    pub(crate) fn is_unavailable(&self) -> bool {
        match grpc_status(&self.headers) {
            Some(status) => matches!(status, UNAVAILABLE | RESOURCE_EXHAUSTED),
            None => matches!(self.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT),
        }
    }
}

impl fmt::Display for FailedAnswer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match grpc_status(&self.headers) {
            Some(status) => write!(to, "it answered gRPC status {status}"),
            None => write!(to, "it answered {}", self.status),
        }
    }
}

// The gRPC statuses of servers that fail.
const UNKNOWN: u32 = 2;
const RESOURCE_EXHAUSTED: u32 = 8;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// Whether a message with these headers is gRPC: its content type is `application/grpc`, alone or with an encoding. That of
/// gRPC-Web is another protocol.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Whether bytes begin with a complete gRPC message: a flag, a length of four bytes, and so many bytes.
pub fn has_message(body: &[u8]) -> bool {
    let Some(([_, length @ ..], rest)) = body.split_first_chunk::<5>() else { return false };
    usize::try_from(u32::from_be_bytes(*length)).is_ok_and(|length| rest.len() >= length)
}

/// The status of a gRPC answer in its trailers, or in its headers if it has no messages.
pub fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.trim().parse().ok()
}

/// Whether the status of a gRPC answer means that this server cannot answer the call now, though another might. A limit on
/// resources is such a status only if the server also says when to retry.
pub fn is_grpc_failure(headers: &HeaderMap) -> bool {
    match grpc_status(headers) {
        Some(UNKNOWN | INTERNAL | UNAVAILABLE) => true,
        Some(RESOURCE_EXHAUSTED) => headers.contains_key("grpc-retry-pushback-ms"),
        _ => false,
    }
}

impl From<FailedAnswer> for OpaqueAnswer {
    fn from(FailedAnswer { status, headers, body }: FailedAnswer) -> Self {
        Self { status, headers, body: OpaqueBody::Whole(body), broken: Broken::default() }
    }
}

impl fmt::Debug for OpaqueBody {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(body) => write!(to, "{} bytes", body.len()),
            Self::Begun(body, _) => write!(to, "{} bytes and more", body.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let is = |kind: &str| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]));
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
            assert!(is(kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""] {
            assert!(!is(kind), "{kind}");
        }
    }
}
