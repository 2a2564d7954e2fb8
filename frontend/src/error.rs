//! Errors of configuration, instances and admin calls. Requests fail with the protocol's errors.

use std::net::SocketAddr;

/// An error of the frontend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("unknown instance {id}: list instances with parm ctl instances")]
    UnknownInstance { id: u32 },
    #[error("duplicate instance '{url}': it already has number {id}")]
    DuplicateInstance { url: String, id: u32 },
    #[error("cannot add an instance: the limit of {limit} is reached: serve the others by another frontend")]
    TooManyInstances { limit: u32 },
    #[error("invalid server address '{url}': {reason}")]
    BadUrl { url: String, reason: String },
    #[error("cannot follow '{url}': {reason}")]
    Service { url: String, reason: String },
    #[error("cannot remove embedded instance {id}: it is a thread of this process: drain it instead")]
    Embedded { id: u32 },
    #[error("unknown model '{name}': list models with parm ctl models or GET /v2/models")]
    UnknownModel { name: String },
    #[error("share: {0}")]
    Shares(#[from] parm_shares::Error),
    #[error("invalid settings: {reason}")]
    BadSettings { reason: String },
    #[error(
        "model '{model}' on {instance} has {what} {actual}, other instances have {expected}: serve the same model everywhere"
    )]
    Disagreement { model: String, instance: String, what: &'static str, expected: String, actual: String },
    #[error(
        "frontend.admin.address {address} is reachable from other machines without a key: set server.keys_file or \
         frontend.admin.token, or listen on 127.0.0.1"
    )]
    OpenAdmin { address: SocketAddr },
    #[error("cannot listen on frontend.admin.address {address}: {reason}")]
    AdminAddress { address: SocketAddr, reason: String },
    #[error("cannot start the timer thread: {reason}")]
    Timer { reason: String },
    #[error("{part} panicked: requests may hang: restart the frontend")]
    Panicked { part: &'static str },
    #[error("code: {0}")]
    Code(#[from] parm_encoder::Error),
    #[error("tensor: {0}")]
    Tensor(#[from] parm_protocol::Error),
    #[error("{0}")]
    NotCoded(String),
    #[error("too many recordings: the limit is {limit}: end one of them")]
    TooManyRecordings { limit: usize },
    #[error(
        "unknown query '{name}': it was not kept or is too old: list kept queries with GET /admin/v1/queries"
    )]
    UnknownQuery { name: String },
    #[error("unknown outcome '{outcome}': use one of {known}")]
    UnknownOutcome { outcome: String, known: String },
    #[error("too many watchers: the limit is {limit}: close a page or a `parm top`")]
    TooManyWatchers { limit: usize },
    #[error("cannot record to {path}: {reason}")]
    Recording { path: std::path::PathBuf, reason: String },
    #[error("cannot capture queries in {path}: {reason}")]
    Capture { path: std::path::PathBuf, reason: String },
    #[error("invalid length of the recording: {seconds} s: use 1 to {limit}")]
    RecordingLength { seconds: u64, limit: u64 },
}

impl Error {
    /// The same error with a server's address as the operator wrote it.
    pub(crate) fn with_url(self, written: &str) -> Self {
        let written = written.to_owned();
        match self {
            Self::BadUrl { reason, .. } => Self::BadUrl { url: written, reason },
            Self::Service { reason, .. } => Self::Service { url: written, reason },
            other => other,
        }
    }
}
