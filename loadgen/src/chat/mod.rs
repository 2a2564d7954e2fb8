//! Load for servers of language models, with times to the first token and between tokens.
//!
//! The figures are those of vLLM's benchmark and MLPerf: time to first token (TTFT), time per output token after the first
//! (TPOT), time between tokens (ITL), and end-to-end latency. All that begin with a request count from its intended time.
//!
//! The first token is the first chunk with content: comments, events without data and chunks that only name a role do not
//! count, since a server can send them before it has computed anything.
//!
//! A run, its records and its report are those of queries ([`crate::run`]), with the time to the first token as the
//! latency. `request` makes requests, `events` reads streams, `exchange` sends one request over a [`Wire`], `answers`
//! has the other figures. This crate opens no connection: the caller supplies the wire, so that crates without a network
//! can use the statistics.

mod answers;
mod events;
mod exchange;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use parm_protocol::client::BoxFuture;

pub(crate) use answers::Answer;
pub use answers::{Answers, ChatReport, write};
pub use request::{Maker, PATH};

/// Chats and the server for them.
#[derive(Clone)]
pub struct Chats {
    /// The connection to the server.
    pub wire: Arc<dyn Wire>,
    /// Makes the requests.
    pub maker: Maker,
}

/// Sends requests to one server.
pub trait Wire: Send + Sync {
    /// Sends a POST request with a JSON body to [`PATH`], and waits for the head of the response. An error names its cause.
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<Box<dyn Incoming>, String>>;

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
