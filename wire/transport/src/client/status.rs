//! The mapping of statuses to errors.

use http::{HeaderMap, StatusCode, header};

use parm_protocol::rest::shorten;
use parm_protocol::{Code, Error, StableCode};

/// Whether a 503 with these headers is shed load. parm sends a retry delay with each 503 and names the code of its error;
/// other servers send a delay only then.
pub(super) fn sheds(headers: &HeaderMap) -> bool {
    match headers.get(StableCode::HEADER) {
        Some(code) => code.as_bytes() == StableCode::Overloaded.name().as_bytes(),
        None => headers.contains_key(header::RETRY_AFTER),
    }
}

/// The class of an HTTP status; `sheds`: a 503 is shed load.
fn code(status: StatusCode, sheds: bool) -> Code {
    match status.as_u16() {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 | 426 | 501 => Code::Unimplemented,
        408 | 504 => Code::DeadlineExceeded,
        413 => Code::TooLarge,
        429 => Code::TooManyRequests,
        400..=499 => Code::InvalidArgument,
        503 if sheds => Code::Overloaded,
        502 | 503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// The error of an HTTP response other than success. An unknown path differs from an unknown model by the protocol's
/// error body, which only the protocol's own endpoints send.
/// `asked` is the method and path.
pub(super) fn from_http(status: StatusCode, sheds: bool, body: &[u8], asked: &str) -> Error {
    #[derive(serde::Deserialize)]
    struct Own {
        error: String,
    }
    let code = code(status, sheds);
    match serde_json::from_slice::<Own>(body) {
        Ok(own) => remote(code, own.error),
        Err(_) if code == Code::NotFound => {
            Error::Unimplemented { what: format!("{asked}: it answered {}", status.as_u16()) }
        }
        Err(_) => {
            let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
            Error::Remote { code, message: format!("the server answered {status}: {}", shown.trim()) }
        }
    }
}

/// The error of a whole answer that breaks the protocol. The server responded, so its connection is not to blame, but its
/// model or the request: a server in Python writes `NaN` for some inputs, which is not JSON.
pub(super) fn unreadable(peer: &str, error: &Error) -> Error {
    Error::Remote { code: Code::Internal, message: format!("{peer}: unreadable answer: {error}") }
}

pub(super) fn from_grpc(status: &tonic::Status) -> Error {
    use tonic::Code as Grpc;
    let code = match status.code() {
        Grpc::NotFound => Code::NotFound,
        Grpc::InvalidArgument | Grpc::OutOfRange | Grpc::AlreadyExists => Code::InvalidArgument,
        Grpc::ResourceExhausted if status.metadata().contains_key("grpc-retry-pushback-ms") => {
            Code::TooManyRequests
        }
        Grpc::ResourceExhausted => Code::TooLarge,
        Grpc::DeadlineExceeded => Code::DeadlineExceeded,
        Grpc::Unavailable if status.metadata().contains_key("grpc-retry-pushback-ms") => Code::Overloaded,
        Grpc::Unavailable | Grpc::Cancelled | Grpc::Aborted | Grpc::FailedPrecondition => Code::Unavailable,
        Grpc::Unauthenticated => Code::Unauthenticated,
        Grpc::PermissionDenied => Code::PermissionDenied,
        Grpc::Unimplemented => Code::Unimplemented,
        Grpc::Ok | Grpc::Unknown | Grpc::Internal | Grpc::DataLoss => Code::Internal,
    };
    remote(code, status.message().into())
}

/// An error of a server. A message may have the size of an answer, and is kept for each row of the request: it is cut.
fn remote(code: Code, mut message: String) -> Error {
    shorten(&mut message);
    Error::Remote { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_of_a_server_is_cut() {
        let long = "x".repeat(1 << 20);
        let body = serde_json::json!({ "error": long }).to_string();
        let status = tonic::Status::internal(long);
        for error in [
            from_http(StatusCode::INTERNAL_SERVER_ERROR, false, body.as_bytes(), ""),
            from_http(StatusCode::INTERNAL_SERVER_ERROR, false, &body.as_bytes()[1..], ""),
            from_grpc(&status),
        ] {
            assert!(error.to_string().len() < 3000, "{} bytes", error.to_string().len());
        }
    }
}
