//! What can go wrong outside of requests: configuration, instances, admin calls. Requests fail with the protocol's errors.

use std::net::SocketAddr;

use parm_protocol::DataType;

/// An error of the frontend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("no instance has number {id}: list them with GET /admin/v1/instances")]
    UnknownInstance { id: u32 },
    #[error("an instance at '{url}' is known already, as number {id}")]
    DuplicateInstance { url: String, id: u32 },
    #[error("{limit} instances are known, no more are accepted: raise frontend.instances.limit")]
    TooManyInstances { limit: u32 },
    #[error("'{url}' is no address of a server: {reason}")]
    BadUrl { url: String, reason: String },
    #[error("'{url}' cannot be followed: {reason}")]
    Service { url: String, reason: String },
    #[error("embedded instances cannot be removed: drain instance {id} instead")]
    Embedded { id: u32 },
    #[error("unknown model '{name}': list the served models with POST /v2/repository/index")]
    UnknownModel { name: String },
    #[error("share: {0}")]
    Shares(#[from] parm_shares::Error),
    #[error("these settings cannot be used: {reason}")]
    BadSettings { reason: String },
    #[error(
        "model '{model}' on {instance} has {what} {actual}, other instances have {expected}: serve the same model everywhere"
    )]
    Disagreement { model: String, instance: String, what: &'static str, expected: String, actual: String },
    #[error(
        "frontend.admin.address {address} can be reached from other machines, and nobody would be asked for a key: set server.keys_file or \
         frontend.admin.token, or listen on 127.0.0.1"
    )]
    OpenAdmin { address: SocketAddr },
    #[error("cannot listen on frontend.admin.address {address}: {reason}")]
    AdminAddress { address: SocketAddr, reason: String },
    #[error("cannot start the timer thread: {reason}")]
    Timer { reason: String },
    #[error("{part} panicked, and without it requests could wait for ever: restart the frontend")]
    Panicked { part: &'static str },
    #[error("instance {instance} answered with {actual} rows of '{output}' to {expected}")]
    WrongRows { instance: String, output: String, expected: usize, actual: usize },
    #[error("code: {0}")]
    Code(#[from] parm_encoder::Error),
    #[error("tensor: {0}")]
    Tensor(#[from] parm_protocol::Error),
    #[error("input '{input}' is {datatype}, which no code can take")]
    NotCodable { input: String, datatype: DataType },
    #[error("output '{output}' is {datatype}: only FP32 can be reconstructed")]
    NotDecodable { output: String, datatype: DataType },
    #[error("the reconstruction of output '{output}' is not finite")]
    NotFinite { output: String },
    #[error("output '{output}' is missing in what a reconstruction needs")]
    PartMissing { output: String },
    #[error("{limit} groups are being coded already")]
    CodersBusy { limit: usize },
    #[error("a code panicked: please report it")]
    CoderPanicked,
    #[error("instance {instance} left out output '{output}'")]
    MissingOutput { instance: String, output: String },
    #[error("{limit} recordings are under way, no more are accepted: end one of them")]
    TooManyRecordings { limit: usize },
    #[error("query '{name}' is not kept (any more): GET /admin/v1/queries lists those that are")]
    UnknownQuery { name: String },
    #[error("{limit} watch already, no more are let in: close a page, or another parm top")]
    TooManyWatchers { limit: usize },
    #[error("{limit} frontends are told already what this one holds, no more are let in")]
    TooManyFollowers { limit: usize },
    #[error("'{url}' is no address of a neighbour: {reason}")]
    BadNeighbour { url: String, reason: String },
    #[error("cannot record to {path}: {reason}")]
    Recording { path: std::path::PathBuf, reason: String },
    #[error("cannot capture queries in {path}: {reason}")]
    Capture { path: std::path::PathBuf, reason: String },
    #[error("a recording of {seconds} seconds: ask for 1 to {limit}")]
    RecordingLength { seconds: u64, limit: u64 },
}
