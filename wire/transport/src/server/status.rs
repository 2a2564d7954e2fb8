//! The mapping of errors to HTTP and gRPC statuses.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use tonic::metadata::MetadataValue;
use tonic::{Code as GrpcCode, Status};

use parm_protocol::{Code, Error, StableCode};

/// Longer gRPC messages are cut, as they may quote a client. They travel in a header, where a byte may take three.
/// Clients accept about 8 kB of headers; beyond that they close the connection with all of its other calls.
const LONGEST_MESSAGE: usize = 2000;

/// The scheme of keys.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// Retry delay of a rejection that has none of its own.
const LATER: Duration = Duration::from_secs(1);

const PUSHBACK: &str = "grpc-retry-pushback-ms";

pub(super) const fn of(code: Code) -> (StatusCode, GrpcCode) {
    match code {
        Code::NotFound => (StatusCode::NOT_FOUND, GrpcCode::NotFound),
        Code::InvalidArgument => (StatusCode::BAD_REQUEST, GrpcCode::InvalidArgument),
        Code::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, GrpcCode::ResourceExhausted),
        Code::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, GrpcCode::ResourceExhausted),
        Code::Overloaded | Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, GrpcCode::Unavailable),
        Code::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, GrpcCode::DeadlineExceeded),
        Code::Unauthenticated => (StatusCode::UNAUTHORIZED, GrpcCode::Unauthenticated),
        Code::PermissionDenied => (StatusCode::FORBIDDEN, GrpcCode::PermissionDenied),
        Code::Unimplemented => (StatusCode::NOT_IMPLEMENTED, GrpcCode::Unimplemented),
        Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, GrpcCode::Internal),
    }
}

/// Whole seconds for `retry-after`, if a retry may succeed.
fn retry_after(error: &Error) -> Option<u64> {
    let wait = match error {
        Error::Overloaded { retry_after, .. } | Error::TooManyRequests { retry_after, .. } => *retry_after,
        _ if matches!(error.code(), Code::Overloaded | Code::Unavailable) => LATER,
        _ => return None,
    };
    Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

/// The status and headers of an error, for responses outside of the protocol.
pub fn refusal(error: &Error) -> (StatusCode, HeaderMap) {
    (of(error.code()).0, headers(error))
}

/// The headers of an error: its stable code, when to retry, and the scheme of keys.
pub(super) fn headers(error: &Error) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(code) = error.stable_code() {
        headers.insert(StableCode::HEADER, HeaderValue::from_static(code.name()));
    }
    if let Some(seconds) = retry_after(error) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code() == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, BEARER);
    }
    headers
}

/// The gRPC status of an error. Shed load carries `grpc-retry-pushback-ms: -1`, which forbids automatic retries; a
/// client over its rate limit receives the delay.
pub(crate) fn grpc(error: &Error) -> Status {
    let mut message = error.to_string();
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    let mut status = Status::new(of(error.code()).1, message);
    if let Some(code) = error.stable_code() {
        status.metadata_mut().insert(StableCode::HEADER, MetadataValue::from_static(code.name()));
    }
    if error.code() == Code::Overloaded {
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from_static("-1"));
    }
    if let Error::TooManyRequests { retry_after, .. } = error {
        let millis = i32::try_from(retry_after.as_millis() + 1).unwrap_or(i32::MAX);
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from(millis));
    }
    status
}

/// The same after an answer that has begun.
pub(crate) fn trailers(error: &Error) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It cannot fail: the message is escaped, and the metadata is ours.
    let _ = grpc(error).add_header(&mut trailers);
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_fits_into_a_header() {
        let error = Error::invalid("€".repeat(100_000));
        let headers = grpc(&error).into_http::<()>().into_parts().0.headers;
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(bytes < 16 << 10 && bytes > LONGEST_MESSAGE, "{bytes} bytes of headers");
        assert_eq!(grpc(&Error::NoKey).message(), Error::NoKey.to_string());
    }

    /// `NotFound` as `NOT_FOUND`, as in the gRPC documentation.
    fn shouted(code: GrpcCode) -> String {
        let name = format!("{code:?}");
        let breaks = |(at, c): (usize, char)| if at > 0 && c.is_uppercase() { vec!['_', c] } else { vec![c] };
        name.chars().enumerate().flat_map(breaks).collect::<String>().to_uppercase()
    }

    #[test]
    fn errors_page_has_the_statuses_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let page = std::fs::read_to_string(path).unwrap();
        for code in Code::ALL {
            let reason = Error::Remote { code, message: String::new() }.reason();
            let (http, grpc) = of(code);
            let row = format!("| `{reason}` | {} | {} |", http.as_u16(), shouted(grpc));
            assert!(page.contains(&row), "docs/errors.md has no row {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, Code::ALL.len(), "docs/errors.md has rows of unknown codes");
    }
}
