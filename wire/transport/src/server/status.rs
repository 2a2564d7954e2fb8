//! The one table from errors to statuses, HTTP and gRPC.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use tonic::metadata::MetadataValue;
use tonic::{Code as GrpcCode, Status};

use parm_protocol::{Code, Error};

/// A longer gRPC message is cut, as it may quote what a client sent. It travels in a header, where a byte may take three
/// and clients put up with some eight kilobytes; over that, they close the connection under their other calls too.
const LONGEST_MESSAGE: usize = 2000;

/// How keys are sent. Browsers would ask for a password where Basic is named, and the page has a dialog of its own.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// How long who is refused for a while is told to wait, where nothing else is said.
const LATER: Duration = Duration::from_secs(1);

const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// HTTP status and gRPC code of each class of errors.
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

/// Whole seconds for `retry-after`, where the error is one that a later try may not meet.
pub(super) fn retry_after(error: &Error, otherwise: Duration) -> Option<u64> {
    let wait = match error {
        Error::Overloaded { retry_after, .. } | Error::TooManyRequests { retry_after, .. } => *retry_after,
        _ if matches!(error.code(), Code::Overloaded | Code::Unavailable) => otherwise,
        _ => return None,
    };
    Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

/// The status and headers of an error, for whatever is served beside the protocol.
pub fn refusal(error: &Error) -> (StatusCode, HeaderMap) {
    (of(error.code()).0, headers(error, LATER))
}

/// What an error says beside its body: when to try again, and that a key is wanted.
pub(super) fn headers(error: &Error, otherwise: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(seconds) = retry_after(error, otherwise) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code() == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, BEARER);
    }
    headers
}

/// The gRPC status of an error. Shed load says `grpc-retry-pushback-ms: -1`: do not retry by yourself;
/// who is over a limit is told how long it lasts.
pub(super) fn grpc(error: &Error) -> Status {
    let mut message = error.to_string();
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    let mut status = Status::new(of(error.code()).1, message);
    if error.code() == Code::Overloaded {
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from_static("-1"));
    }
    if let Error::TooManyRequests { retry_after, .. } = error {
        let millis = i32::try_from(retry_after.as_millis() + 1).unwrap_or(i32::MAX);
        status.metadata_mut().insert(PUSHBACK, MetadataValue::from(millis));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_quotes_a_client_at_length_fits_a_header() {
        let error = Error::UnknownDatatype { datatype: "€".repeat(100_000) };
        let headers = grpc(&error).into_http::<()>().into_parts().0.headers;
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        assert!(bytes < 16 << 10 && bytes > LONGEST_MESSAGE, "{bytes} bytes of headers");
        assert_eq!(grpc(&Error::NoKey).message(), Error::NoKey.to_string());
    }

    /// The code after another one; a code that is missing here does not compile.
    fn next(code: Code) -> Option<Code> {
        match code {
            Code::NotFound => Some(Code::InvalidArgument),
            Code::InvalidArgument => Some(Code::TooLarge),
            Code::TooLarge => Some(Code::Overloaded),
            Code::Overloaded => Some(Code::DeadlineExceeded),
            Code::DeadlineExceeded => Some(Code::Unavailable),
            Code::Unavailable => Some(Code::Unauthenticated),
            Code::Unauthenticated => Some(Code::PermissionDenied),
            Code::PermissionDenied => Some(Code::Unimplemented),
            Code::Unimplemented => Some(Code::Internal),
            Code::Internal => Some(Code::TooManyRequests),
            Code::TooManyRequests => None,
        }
    }

    /// `NotFound` as `NOT_FOUND`, as gRPC's own documents write it.
    fn shouted(code: GrpcCode) -> String {
        let name = format!("{code:?}");
        let breaks = |(at, c): (usize, char)| if at > 0 && c.is_uppercase() { vec!['_', c] } else { vec![c] };
        name.chars().enumerate().flat_map(breaks).collect::<String>().to_uppercase()
    }

    #[test]
    fn the_page_of_errors_says_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let page = std::fs::read_to_string(path).unwrap();
        let codes: Vec<Code> = std::iter::successors(Some(Code::NotFound), |code| next(*code)).collect();
        for code in &codes {
            let reason = Error::Remote { code: *code, message: String::new() }.reason();
            let (http, grpc) = of(*code);
            let row = format!("| `{reason}` | {} | {} |", http.as_u16(), shouted(grpc));
            assert!(page.contains(&row), "docs/errors.md has no row {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, codes.len(), "docs/errors.md has rows of codes that there are not");
    }
}
