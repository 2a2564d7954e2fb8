//! The connection to a server, which the caller supplies.

use bytes::Bytes;
use parm_protocol::client::BoxFuture;

/// Sends requests to one server.
pub trait Wire: Send + Sync {
    /// Sends a POST request with a JSON body, and waits for the head of the response. An error names its cause.
    fn post(&self, path: &'static str, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>>;

    /// Returns how many requests it sent twice, because a kept connection ended without an answer.
    fn repeated(&self) -> u64;
}

/// A response that may still be arriving.
pub trait Incoming: Send {
    /// The HTTP status.
    fn status(&self) -> u16;

    /// The next bytes of the body; `None` after its regular end.
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, String>>;
}
