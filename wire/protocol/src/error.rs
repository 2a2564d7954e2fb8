//! Protocol errors and their classes.

use std::path::PathBuf;
use std::time::Duration;

use crate::FailedAnswer;

macro_rules! classes {
    ($($(#[$about:meta])+ $name:ident $number:literal $reason:literal,)+) => {
        /// The class of an error, which decides the HTTP and gRPC status (see `server::status`). Frames carry its number: new
        /// classes come last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[$about])+ $name = $number,)+
        }

        impl Code {
            /// All classes, by their numbers.
            pub const ALL: [Code; 11] = [$(Code::$name,)+];

            /// A short stable name for metrics.
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Code::$name => $reason,)+
                }
            }
        }
    };
}

classes! {
    /// Unknown model, version or path.
    NotFound 1 "not_found",
    /// The request can never succeed unchanged.
    InvalidArgument 2 "invalid_argument",
    /// The body exceeds the limit.
    TooLarge 3 "too_large",
    /// A queue is full or load is shed: retry later.
    Overloaded 4 "overloaded",
    /// The deadline expired.
    DeadlineExceeded 5 "deadline",
    /// No instance can serve the model now.
    Unavailable 6 "unavailable",
    /// A key is missing or unknown.
    Unauthenticated 7 "unauthenticated",
    /// The key does not allow this, or the request came from another machine.
    PermissionDenied 8 "permission_denied",
    /// The server does not support this.
    Unimplemented 9 "unimplemented",
    /// An internal error.
    Internal 10 "internal",
    /// The key exceeds its rate or concurrency limit: retry later.
    TooManyRequests 11 "too_many_requests",
}

/// A protocol error. Messages state what failed and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("unknown model '{name}': list the served models with GET /v2/models")]
    UnknownModel { name: String },
    #[error("model '{name}' has no version '{version}': request one of {available:?}")]
    UnknownVersion { name: String, version: String, available: Vec<String> },
    #[error("unknown path '{path}': {}", remedy_of(path))]
    UnknownPath { path: String },
    #[error("malformed request: {message}")]
    Malformed { message: String },
    /// A request or tensor that contradicts itself or its model.
    #[error("{message}")]
    Invalid { message: String },
    #[error("output '{name}' is not an output of model '{model}': its outputs are {expected:?}")]
    UnknownOutput { model: String, name: String, expected: Vec<String> },
    #[error(
        "input '{name}' has a string that is not UTF-8, number {number} from 0: the model takes text: encode bytes as text"
    )]
    NotText { name: String, number: usize },
    #[error("rows {start}..+{count} are out of range: the tensor has {rows} rows")]
    RowsOutOfRange { start: usize, count: usize, rows: usize },
    #[error("tensors of shape {actual:?} and {expected:?} cannot share a batch")]
    RowShapeMismatch { expected: Vec<usize>, actual: Vec<usize> },
    #[error("no tensors to put in a batch")]
    NothingToConcatenate,
    #[error("{rows} rows in one request exceed the limit of {limit}: split the request")]
    BatchTooLarge { rows: usize, limit: usize },
    #[error("the body has more than {limit} bytes: send less, or raise the server's body limit")]
    BodyTooLarge { limit: usize },
    #[error(
        "the answer has more than {limit} bytes: send fewer rows, request fewer outputs, or raise server.max_body_bytes"
    )]
    AnswerTooLarge { limit: usize },
    #[error(
        "the request's tensors take {bytes} bytes when they are read, more than {limit}: send them in the binary form, send \
         less, or raise server.max_body_bytes"
    )]
    TensorsTooLarge { bytes: usize, limit: usize },
    #[error("{message}")]
    Overloaded { message: String, retry_after: Duration },
    #[error(
        "the deadline passed after {:?}: allow more time with the 'timeout' parameter (microseconds), or add instances",
        rounded(*waited)
    )]
    DeadlineExceeded { waited: Duration },
    #[error("no instance can serve model '{model}' now: check the instances' health")]
    NoInstance { model: String },
    #[error("{message}")]
    Unavailable { message: String },
    #[error(
        "a key is required: send 'authorization: Bearer KEY'; the server's operator makes one with parm keys new"
    )]
    NoKey,
    #[error("the key is unknown or revoked: ask the server's operator for another")]
    UnknownKey,
    #[error(
        "key '{name}' has the role {role}, this requires {wanted}: ask the server's operator for a key of that role"
    )]
    WrongRole { name: String, role: &'static str, wanted: &'static str },
    #[error("{message}")]
    WrongShare { message: String },
    #[error("{message}")]
    TooManyRequests { message: String, retry_after: Duration },
    #[error(
        "without a key this is allowed from the server's own machine only, and not from a web page: send a key of the role \
         control (server.keys_file says who has one)"
    )]
    LocalOnly,
    #[error("loading and unloading models requires a key: set server.keys_file, or server.model_control")]
    ModelControl,
    #[error("cannot use the key file {}: {reason}", path.display())]
    KeyFile { path: PathBuf, reason: String },
    #[error("cannot use [tls]: {reason}")]
    Tls { reason: String },
    #[error("this server does not support {what}")]
    Unimplemented { what: String },
    #[error("{message}")]
    Internal { message: String },
    #[error("cannot listen on {address}: {message}")]
    Listen { address: String, message: String },
    /// An error response of a remote server.
    #[error("{message}")]
    Remote { code: Code, message: String },
    /// An upstream server's answer that stands for a failure.
    #[error("{0}")]
    Answered(Box<FailedAnswer>),
    /// A request that was certainly not sent.
    #[error("cannot reach {}: {message}", written(peer))]
    Unsent { peer: String, message: String },
    /// The transport to a remote server broke; whether the request ran there is unknown.
    #[error("connection to {} failed: {message}", written(peer))]
    Transport { peer: String, message: String },
    /// A request that no server answered. Clients cannot act on a server's statement about load or models, so its class is
    /// one of two.
    #[error("every attempt failed: last error: {last}")]
    Attempts { last: Box<Error> },
}

/// What to do about an unknown path. Scrapers often ask for metrics at the address of clients.
fn remedy_of(path: &str) -> &'static str {
    match path {
        "/metrics" => "metrics have an address of their own, --metrics",
        _ => "see /v2/openapi.json",
    }
}

/// The address of a server as its operator wrote it.
fn written(peer: &str) -> &str {
    peer.strip_prefix("upstream+").unwrap_or(peer)
}

impl Error {
    /// The error's class.
    pub fn code(&self) -> Code {
        use Error::*;
        match self {
            UnknownModel { .. } | UnknownVersion { .. } | UnknownPath { .. } => Code::NotFound,
            Malformed { .. }
            | Invalid { .. }
            | UnknownOutput { .. }
            | NotText { .. }
            | RowsOutOfRange { .. }
            | RowShapeMismatch { .. }
            | NothingToConcatenate
            | BatchTooLarge { .. } => Code::InvalidArgument,
            BodyTooLarge { .. } | AnswerTooLarge { .. } | TensorsTooLarge { .. } => Code::TooLarge,
            Overloaded { .. } => Code::Overloaded,
            DeadlineExceeded { .. } => Code::DeadlineExceeded,
            NoInstance { .. } | Unavailable { .. } | Unsent { .. } | Transport { .. } => Code::Unavailable,
            NoKey | UnknownKey => Code::Unauthenticated,
            WrongRole { .. } | WrongShare { .. } | LocalOnly | ModelControl => Code::PermissionDenied,
            TooManyRequests { .. } => Code::TooManyRequests,
            Unimplemented { .. } => Code::Unimplemented,
            Internal { .. } | Listen { .. } | KeyFile { .. } | Tls { .. } => Code::Internal,
            Remote { code, .. } => *code,
            Attempts { last } if last.code() == Code::Internal => Code::Internal,
            Attempts { .. } => Code::Unavailable,
            Answered(answer) if answer.is_unavailable() => Code::Unavailable,
            Answered(_) => Code::Internal,
        }
    }

    /// An error about the form of a request or an answer, as opposed to its meaning.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::Malformed { message: message.into() }
    }

    /// An error of a request or tensor that contradicts itself or its model.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }

    /// An error of load that may soon be less.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::Overloaded { message: message.into(), retry_after: Duration::from_secs(1) }
    }

    /// The short stable name of its class.
    pub fn reason(&self) -> &'static str {
        self.code().reason()
    }
}

/// Rounds a duration in a message for people to three digits.
pub fn rounded(time: Duration) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    let nanos = time.as_nanos();
    let unit = 10u128.pow(nanos.checked_ilog10().unwrap_or(0).saturating_sub(2));
    let nanos = nanos.saturating_add(unit / 2) / unit * unit;
    u64::try_from(nanos / SECOND).map_or(time, |seconds| Duration::new(seconds, (nanos % SECOND) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_three_digits() {
        for (nanos, shown) in [
            (0, "0ns"),
            (999, "999ns"),
            (9_661_790, "9.66ms"),
            (104_660_123, "105ms"),
            (999_900_000, "1s"),
            (12_345_678_901, "12.3s"),
        ] {
            assert_eq!(format!("{:?}", rounded(Duration::from_nanos(nanos))), shown);
        }
    }
}
